from __future__ import annotations

from benchmarks.targets import Target, decode_targets, prefill_targets


def test_met() -> None:
    """A bound is met on its own side of it."""
    assert Target("share", 0.7, 0.7).met
    assert not Target("share", 0.7, 0.69).met
    assert Target("load", 1.3, 1.2, at_most=True).met
    assert not Target("load", 1.3, 1.4, at_most=True).met
    assert str(Target("share", 0.7, 0.5)) == "share: 0.5, target at least 0.7: missed"


def test_decode_targets() -> None:
    """Shares hold for their shapes, ratios only beside a peer."""
    assert [target.bound for target in decode_targets("1.7b", "Q2_0", 0.5, 20.0)] == [0.7, 15.0]
    assert [target.bound for target in decode_targets("27b", "PQ2_0", 0.5, None)] == [0.8]
    assert [target.bound for target in decode_targets("SmolLM2-135M", "Q4_1", 0.5, 0.7)] == [0.6]
    assert decode_targets("tiny-qwen3", "Q2_0", 0.5, 20.0) == []


def test_prefill_targets() -> None:
    """The ratio to reach depends on the instruction set."""
    bounds = {
        kernel: [target.bound for target in prefill_targets("1.7b", "Q1_0", kernel, 5.0)]
        for kernel in ("amx", "avx512-vnni", "avx2", "avx2-vnni", "portable")
    }
    assert bounds == {"amx": [8.0], "avx512-vnni": [4.0], "avx2": [1.5], "avx2-vnni": [1.5], "portable": []}
    assert prefill_targets("1.7b", "Q1_0", "avx2", None) == []
