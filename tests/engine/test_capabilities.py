from __future__ import annotations

import json
import sys
import sysconfig

import pytest

from engine import capabilities as module
from engine.capabilities import capabilities


def test_record() -> None:
    """The record has its fields in order and says what is and is not there."""
    record = capabilities()
    assert list(record)[:7] == [
        *("schema_version", "kind", "runtime", "cpu", "backends", "supported_contracts", "qualification")
    ]
    assert record["schema_version"] == 1
    assert list(record["runtime"]) == ["name", "version", "target"]
    assert record["runtime"]["name"] == "prism-inference"
    assert list(record["runtime"]["target"]) == ["architecture", "os", "environment"]
    assert list(record["cpu"]) == ["scalar", "neon_build_eligible"]
    assert record["cpu"]["scalar"] is True
    assert [name for name, backend in record["backends"].items() if backend["available"]] == ["cpu"]
    assert record["supported_contracts"] == [
        *("llama:canon-2/8", "llama:canon-2/16", "qwen3:canon-2/8", "qwen3:canon-2/16"),
        *("qwen35:canon-2/8", "qwen35:canon-2/16"),
    ]
    assert record["qualification"] == "unqualified"
    kernels = record["kernels"]
    assert kernels["default"] in kernels["available"]
    assert {"numpy", *kernels["built"]} >= set(kernels["available"])
    assert kernels["failed"] == []
    assert len(json.dumps(record)) < 4096


@pytest.mark.parametrize(
    ("tag", "system", "expected"),
    [
        ("linux-x86_64", "linux", ("x86_64", "linux")),
        ("linux-aarch64", "linux", ("aarch64", "linux")),
        ("win-amd64", "win32", ("x86_64", "windows")),
        ("win-arm64", "win32", ("aarch64", "windows")),
        ("win32", "win32", ("x86", "windows")),
        ("macosx-11.0-arm64", "darwin", ("aarch64", "macos")),
    ],
)
def test_target(tag: str, system: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is what the interpreter was built for, in the usual words."""
    monkeypatch.setattr(sysconfig, "get_platform", lambda: tag)
    monkeypatch.setattr(sys, "platform", system)
    target = capabilities()["runtime"]["target"]
    assert (target["architecture"], target["os"]) == expected


@pytest.mark.parametrize(
    ("built", "eligible"),
    [(("portable", "neon"), True), (("portable", "avx2"), False), (("portable",), False), ((), False)],
)
def test_neon_is_a_fact_of_the_build(
    built: tuple[str, ...], eligible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says whether the level that dispatch would take was built, whatever this processor can do."""
    monkeypatch.setattr(module, "BUILT_LEVELS", built)
    assert capabilities()["cpu"]["neon_build_eligible"] is eligible


def test_this_build_has_neon_on_arm_alone() -> None:
    """A build for another processor cannot have it."""
    record = capabilities()
    if record["runtime"]["target"]["architecture"] != "aarch64":
        assert record["cpu"]["neon_build_eligible"] is False
        assert "neon" not in record["kernels"]["available"]
