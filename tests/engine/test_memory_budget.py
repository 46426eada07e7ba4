from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import memory_budget
from engine.memory_budget import default_memory_bytes, machine_bytes

GIB = 1024**3


def test_half_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default is half of the machine's memory, but the file always fits."""
    monkeypatch.setattr(memory_budget, "machine_bytes", lambda: 16 * GIB)
    assert default_memory_bytes(5) == 8 * GIB
    assert default_memory_bytes(9 * GIB) == 9 * GIB


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1073741824\n", GIB), ("max\n", 4 * GIB), ("99999999999999\n", 4 * GIB), (None, 4 * GIB)],
)
def test_container_limit(
    limit: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's limit counts where it is lower than the machine's memory."""
    path = tmp_path / "memory.max"
    if limit is not None:
        path.write_text(limit)
    monkeypatch.setattr(memory_budget, "CGROUP_LIMIT", path)
    monkeypatch.setattr(memory_budget, "_physical_bytes", lambda: 4 * GIB)
    assert machine_bytes() == expected


def test_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The system tells a sensible number; where it does not, 4 GiB are assumed."""
    assert 64 * 1024**2 < machine_bytes() < 2**50
    monkeypatch.setattr(memory_budget, "CGROUP_LIMIT", tmp_path / "none")
    if hasattr(os, "sysconf"):
        monkeypatch.setattr(os, "sysconf", lambda _: (_ for _ in ()).throw(ValueError))
        assert machine_bytes() == 4 * GIB
