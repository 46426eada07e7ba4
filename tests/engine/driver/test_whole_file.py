from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from engine.driver.whole_file import whole_file
from engine.errors import InvalidInputError


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_appears_at_the_end(tmp_path: Path) -> None:
    """Until the writer is done there is nothing, or the older file, under the name."""
    path = tmp_path / "r.json"
    with whole_file(path, "--receipt") as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"
    with whole_file(path, "--receipt") as file:
        file.write(b"second")
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"
    assert names(tmp_path) == ["r.json"]


def fail(file: BinaryIO, error: type[BaseException]) -> None:
    """Writes a part and raises."""
    file.write(b"half")
    raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    """A writer that fails leaves no file, and an older one as it was."""
    path = tmp_path / "r.json"
    path.write_bytes(b"old")
    with pytest.raises(error), whole_file(path, "--receipt") as file:
        fail(file, error)
    assert (names(tmp_path), path.read_bytes()) == (["r.json"], b"old")


def test_two_writers(tmp_path: Path) -> None:
    """Two at once do not mix; the last to finish wins."""
    path = tmp_path / "r.json"
    with whole_file(path, "--receipt") as outer:
        with whole_file(path, "--receipt") as inner:
            inner.write(b"inner")
        outer.write(b"outer")
        assert path.read_bytes() == b"inner"
    assert path.read_bytes() == b"outer"


def test_no_place(tmp_path: Path) -> None:
    """A folder of that name, a missing folder, or a device is refused before the work begins."""
    places = [tmp_path, tmp_path / "none" / "r.json", *([Path("/dev/null")] if os.name == "posix" else [])]
    for place in places:
        with pytest.raises(InvalidInputError, match=r"^--receipt: "), whole_file(place, "--receipt"):
            pytest.fail("it was opened")
    assert names(tmp_path) == []


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_links_are_kept(tmp_path: Path) -> None:
    """A link stays one: the file that it leads to is replaced."""
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with whole_file(tmp_path / "link", "--receipt") as file:
        file.write(b"x")
    assert (tmp_path / "target").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()
