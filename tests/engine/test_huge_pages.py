"""Tests of `engine.huge_pages`."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import huge_pages


def test_reads_the_kernels_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is given in kibibytes."""
    maps = tmp_path / "smaps_rollup"
    maps.write_text("55-7f ---p 0 0 0 [rollup]\nRss:   900 kB\nAnonHugePages:      6144 kB\n", "ascii")
    monkeypatch.setattr(huge_pages, "MAPS", maps)
    assert huge_pages.huge_page_bytes() == 6144 * 1024


def test_unknown_where_the_system_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such file, or no such line: None, not a guess."""
    monkeypatch.setattr(huge_pages, "MAPS", tmp_path / "missing")
    assert huge_pages.huge_page_bytes() is None
    (tmp_path / "empty").write_text("Rss: 1 kB\n")
    monkeypatch.setattr(huge_pages, "MAPS", tmp_path / "empty")
    assert huge_pages.huge_page_bytes() is None
