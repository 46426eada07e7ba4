from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from benchmarks import decode, prefill
from benchmarks.bandwidth import ReadSpeed


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where model files are written, once for all tests."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands measure the memory with a small buffer."""
    for command in (decode, prefill):
        monkeypatch.setattr(command, "ReadSpeed", partial(ReadSpeed, nbytes=1 << 20))
