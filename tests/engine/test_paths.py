from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.paths import long_form, openable

LONG = "\\".join(["x" * 50] * 6)  # 305 characters


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("C:\\models\\m.gguf", "C:\\models\\m.gguf"),
        ("C:\\" + "x" * 244, "C:\\" + "x" * 244),  # 247 characters, the most that a folder may have
        ("C:\\" + "x" * 245, "\\\\?\\C:\\" + "x" * 245),
        (f"C:\\{LONG}", f"\\\\?\\C:\\{LONG}"),
        (f"C:/a/../{LONG}/./m", f"\\\\?\\C:\\{LONG}\\m"),
        (f"\\\\server\\share\\{LONG}", f"\\\\?\\UNC\\server\\share\\{LONG}"),
        (f"//server/share/{LONG}", f"\\\\?\\UNC\\server\\share\\{LONG}"),
        (f"\\\\?\\C:\\{LONG}", f"\\\\?\\C:\\{LONG}"),
        (f"\\\\.\\{LONG}", f"\\\\.\\{LONG}"),
    ],
)
def test_long_paths_on_windows(path: str, expected: str) -> None:
    """A path beyond 247 characters gets the prefix of Microsoft's long form, in its absolute, plain form."""
    assert long_form(path, "win32") == expected


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_other_systems_have_no_long_form(platform: str) -> None:
    """Elsewhere a path is taken as it is, however long."""
    assert long_form("/" + "x/" * 400, platform) == "/" + "x/" * 400


def test_a_path_stays_itself(tmp_path: Path) -> None:
    """What can be opened is the same file."""
    (tmp_path / "größe").write_bytes(b"x")
    assert openable(tmp_path / "größe").read_bytes() == b"x"


@pytest.mark.skipif(os.name == "nt", reason="Windows has all of Unicode, and halves of pairs")
def test_characters_that_the_system_lacks() -> None:
    """Half of a surrogate pair stands for no byte: an error of opening, not of the program."""
    with pytest.raises(OSError, match="lacks characters"):
        openable(Path("\ud800"))


@pytest.mark.skipif(sys.platform == "win32", reason="a path longer than Windows' usual limit")
def test_deep_folders_open(tmp_path: Path) -> None:
    """A path of more than 260 characters is opened as it is."""
    folder = tmp_path / "/".join(["d" * 60] * 5)
    folder.mkdir(parents=True)
    (folder / "f").write_bytes(b"deep")
    assert len(str(folder)) > 300
    assert openable(folder / "f").read_bytes() == b"deep"
