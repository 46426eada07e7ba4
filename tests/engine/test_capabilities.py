from __future__ import annotations

import json
import sys
import sysconfig

import pytest

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
    assert record["cpu"] == {"scalar": True, "neon_build_eligible": False}
    assert [name for name, backend in record["backends"].items() if backend["available"]] == ["cpu"]
    assert "qwen35:canon-1/16" in record["supported_contracts"]
    assert record["qualification"] == "unqualified"
    assert record["kernels"]["default"] in record["kernels"]["available"]
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
