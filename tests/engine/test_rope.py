from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.errors import EngineError, MetadataError, UnsupportedArchitectureError
from engine.graphs.rope import RopeTable, rope_table
from tests.gguf_writer import GgufWriter
from tests.vocabularies import metadata_of

# Bonsai 8B: 128 rotated dimensions, base 10^6, YaRN from 16,384 positions to four times as many.
YARN_8B: dict[str, tuple[str, Any]] = {
    "freq_base": ("f32", 1e6),
    "scaling.type": ("string", "yarn"),
    "scaling.factor": ("f32", 4.0),
    "scaling.original_context_length": ("u32", 16384),
}


def table(
    keys: dict[str, tuple[str, Any]], head_dim: int = 128, context: int = 3, **options: Any
) -> RopeTable:
    """The table that some keys of `qwen3.rope.` describe."""
    writer = GgufWriter()
    for name, entry in keys.items():
        writer.add(f"qwen3.rope.{name}", *entry)
    return rope_table(metadata_of(writer), "qwen3", head_dim, context, **options)


def frequencies(found: RopeTable) -> list[float]:
    """The angle of every pair at position 1, whatever the magnitude."""
    return [math.atan2(s, c) for s, c in zip(found.sines[1], found.cosines[1], strict=True)]


def test_plain_angles() -> None:
    """Pair i of d dimensions turns by base^(-2i/d) a position; the base defaults to 10,000."""
    found = table({}, head_dim=4, context=3)
    assert found.cosines.shape == found.sines.shape == (3, 2)
    assert found.cosines.dtype == np.float32
    expected = np.array([[0, 0], [1, 0.01], [2, 0.02]])
    np.testing.assert_array_equal(found.cosines, np.cos(expected).astype(np.float32))
    np.testing.assert_array_equal(found.sines, np.sin(expected).astype(np.float32))
    assert not found.adjacent


def test_only_the_declared_dimensions_turn() -> None:
    """The frequencies belong to the number of rotated dimensions, not to the head's."""
    found = table({"dimension_count": ("u32", 64), "freq_base": ("f32", 1e7)}, head_dim=256)
    assert found.cosines.shape[1] == 32
    assert frequencies(found)[16] == pytest.approx(1e7**-0.5, rel=1e-6)


def test_yarn_of_the_8b_worked_by_hand() -> None:
    """Correction dimensions 20 and 37, magnitude 1 + 0.1 ln 4 = 1.138629.

    corr(n) = 128 ln(16384 / (2 pi n)) / (2 ln 10^6): corr(32) = 20.4 and corr(1) = 36.4.
    """
    found = table(YARN_8B)
    magnitudes = np.hypot(found.cosines[1].astype(float), found.sines[1])
    np.testing.assert_allclose(magnitudes, 1.138629, rtol=1e-6)
    turned = frequencies(found)
    for i in range(64):
        plain = 10.0 ** (-6 * 2 * i / 128)
        kept = 1.0 if i <= 20 else 0.0 if i >= 37 else 1 - (i - 20) / 17
        assert turned[i] == pytest.approx(plain * (kept + (1 - kept) / 4), rel=2e-6)
    assert turned[28] == pytest.approx(10.0 ** (-6 * 56 / 128) * (9 / 17 + 8 / 17 / 4), rel=2e-6)


def test_yarn_reads_its_optional_keys() -> None:
    """Other correction rotations move the ramp; the attention factor multiplies the magnitude."""
    keys = YARN_8B | {"scaling.attn_factor": ("f32", 0.5), "scaling.yarn_ext_factor": ("f32", 1.0)}
    assert math.hypot(*map(float, (table(keys).cosines[1, 0], table(keys).sines[1, 0]))) == pytest.approx(
        1.138629 / 2, rel=1e-6
    )
    # corr(2) = 33.2: the ramp begins at 33 instead of 20.
    late = table(YARN_8B | {"scaling.yarn_beta_fast": ("f32", 2.0)})
    assert frequencies(late)[33] == pytest.approx(10.0 ** (-6 * 66 / 128), rel=2e-6)


def test_linear_scaling_divides_positions() -> None:
    """Also without a type, which then means linear; a factor of 0 or an absent one changes nothing."""
    plain = frequencies(table({}, head_dim=8))
    linear, factor = ("string", "linear"), "scaling.factor"
    half: list[dict[str, tuple[str, Any]]] = [
        {"scaling.type": linear, factor: ("f32", 2.0)},
        {factor: ("f32", 2.0)},
    ]
    for keys in half:
        assert frequencies(table(keys, head_dim=8)) == pytest.approx([f / 2 for f in plain], rel=1e-6)
    unchanged: list[dict[str, tuple[str, Any]]] = [
        {factor: ("f32", 0.0)},
        {"scaling.type": ("string", "none"), factor: ("f32", 4.0)},
        {"scaling.type": linear},
    ]
    for keys in unchanged:
        assert frequencies(table(keys, head_dim=8)) == plain


def test_divisors_divide_the_frequencies() -> None:
    """As `rope_freqs.weight` of Llama 3.1 files does."""
    divisors = np.array([1, 8], np.float32)
    found = table({}, head_dim=4, adjacent=True, divisors=divisors)
    assert frequencies(found) == pytest.approx([1, 0.01 / 8], rel=1e-6)
    assert found.adjacent


def test_rows_are_cut_by_position() -> None:
    """Tokens from a position on get the rows of their own positions."""
    found = table({}, head_dim=4, context=6)
    rows = found.rows(2, 3)
    np.testing.assert_array_equal(rows.cosines, found.cosines[2:5])
    np.testing.assert_array_equal(rows.sines, found.sines[2:5])
    assert rows.adjacent == found.adjacent


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"scaling.type": ("string", "longrope")}, UnsupportedArchitectureError, "'longrope'"),
        ({"scaling.factor": ("f32", -1.0)}, MetadataError, "factor is -1"),
        ({"scaling.original_context_length": ("u32", 0)}, MetadataError, "original_context_length is 0"),
        ({"scaling.yarn_ext_factor": ("f32", 0.5)}, UnsupportedArchitectureError, "ext_factor"),
        ({"freq_base": ("f32", 1.0)}, MetadataError, "freq_base is 1"),
        ({"freq_base": ("f32", -5.0)}, MetadataError, "freq_base"),
        ({"dimension_count": ("u32", 130)}, MetadataError, "130"),
        ({"dimension_count": ("u32", 7)}, MetadataError, "even"),
        ({"dimension_count": ("u32", 0)}, MetadataError, "dimension_count is 0"),
    ],
)
def test_impossible_values_are_refused(
    changes: dict[str, tuple[str, Any]], error: type[EngineError], words: str
) -> None:
    """The error names key and value."""
    with pytest.raises(error, match=words):
        table(YARN_8B | changes)


def test_yarn_needs_its_original_context() -> None:
    """Without it the correction dimensions are unknown."""
    keys = {name: entry for name, entry in YARN_8B.items() if "original" not in name}
    with pytest.raises(MetadataError, match="original_context_length"):
        table(keys)
