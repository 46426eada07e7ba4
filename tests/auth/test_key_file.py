from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from auth.errors import KeyFileError, KeyFormatError
from auth.key_file import read_key_file, read_key_stream, write_key_file
from auth.keys import Key

SECRET = "sentinel-0123456789abcdef"
posix = pytest.mark.skipif(os.name != "posix", reason="mode bits and pipes are POSIX")


def key_file(folder: Path, data: bytes, mode: int = 0o600) -> Path:
    """A key file with some content and mode."""
    path = folder / "key"
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_private_file_with_one_line_is_read(tmp_path: Path, end: bytes) -> None:
    """The line may end with a line feed or not."""
    assert read_key_file(key_file(tmp_path, SECRET.encode() + end)).reveal() == SECRET


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"short\n",
        SECRET.encode() + b"\r\n",
        SECRET.encode() + b"\n\n",
        SECRET.encode() + b" \n",
        b" " + SECRET.encode(),
        b"\xef\xbb\xbf" + SECRET.encode(),
        SECRET.encode() + b"\n" + SECRET.encode() + b"\n",
        SECRET.encode() + b"\0",
        b"\xff\xfe" + SECRET.encode("utf-16-le"),
        b"a" * 513,
        b"a" * 10_000_000,
    ],
)
def test_files_that_hold_no_key_are_refused(tmp_path: Path, data: bytes) -> None:
    """Empty, short, long, decorated and foreign content is refused, with the file's name and no content."""
    path = key_file(tmp_path, data)
    with pytest.raises(KeyFormatError) as caught:
        read_key_file(path)
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    """Any right of group or others is too much; the message tells the mode and the remedy."""
    path = key_file(tmp_path, SECRET.encode(), mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}.*chmod 600"):
        read_key_file(path)


@posix
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    """A named pipe without a writer, and a folder."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (pipe, tmp_path):
        with pytest.raises(KeyFileError, match="not a regular file"):
            read_key_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """The message names the file."""
    with pytest.raises(KeyFileError, match="nothing-here"):
        read_key_file(tmp_path / "nothing-here")


def test_the_first_line_of_a_stream_is_the_key() -> None:
    """What follows the line stays in the stream."""
    stream = io.BytesIO(SECRET.encode() + b"\nrest")
    assert read_key_stream(stream).reveal() == SECRET
    assert stream.read() == b"rest"


@pytest.mark.parametrize("data", [b"", b"\n", SECRET.encode() + b"\r\n", b"a" * 10_000])
def test_streams_without_a_key_are_refused(data: bytes) -> None:
    """The message says that standard input was meant."""
    with pytest.raises(KeyFormatError, match="standard input"):
        read_key_stream(io.BytesIO(data))


def test_a_new_key_file_is_private_and_readable(tmp_path: Path) -> None:
    """The file has mode 0600 whatever the umask is, and holds the key and a line feed."""
    path = tmp_path / "key"
    old = os.umask(0)
    try:
        write_key_file(path, Key(SECRET))
    finally:
        os.umask(old)
    assert path.read_bytes() == SECRET.encode() + b"\n"
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600
    assert read_key_file(path).reveal() == SECRET


def test_existing_files_and_links_are_never_overwritten(tmp_path: Path) -> None:
    """A file, a link to a file and a dangling link stay what they are."""
    path = key_file(tmp_path, b"precious")
    taken = [path]
    if os.name == "posix":
        link, dangling = tmp_path / "link", tmp_path / "dangling"
        link.symlink_to(path)
        dangling.symlink_to(tmp_path / "nowhere")
        taken += [link, dangling]
    for existing in taken:
        with pytest.raises(KeyFileError, match="exists already"):
            write_key_file(existing, Key(SECRET))
    assert path.read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """No folders are made."""
    with pytest.raises(KeyFileError, match="cannot create"):
        write_key_file(tmp_path / "missing" / "key", Key(SECRET))
