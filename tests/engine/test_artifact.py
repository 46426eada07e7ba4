from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import threading
from io import FileIO
from pathlib import Path

import pytest

from engine import artifact
from engine.artifact import Pin, measure, read_verified, read_verified_header
from engine.errors import (
    ArtifactError,
    BudgetError,
    HashMismatchError,
    InvalidInputError,
    LengthMismatchError,
)

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX file kinds")
CONTENT = bytes(range(256)) * 700 + b"tail"


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 10,000 bytes, so that small files take many."""
    monkeypatch.setattr(artifact, "CHUNK_BYTES", 10_000)


@pytest.fixture
def pin(tmp_path: Path) -> Pin:
    """A true pin of a file with `CONTENT`."""
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return Pin(path, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def changed(
    pin: Pin, *, nbytes: int | None = None, sha256: str | None = None, path: Path | None = None
) -> Pin:
    """The pin with something else in it."""
    return Pin(path or pin.path, nbytes or pin.nbytes, sha256 or pin.sha256)


@pytest.mark.parametrize("size", [1, 9_999, 10_000, 10_001, 30_000, 40_000, 40_001])
def test_reads_every_byte(tmp_path: Path, size: int) -> None:
    """Any length, whole chunks or not, comes back whole, hashed and writable."""
    content = CONTENT[:size]
    path = tmp_path / "m"
    path.write_bytes(content)
    pin = Pin(path, size, hashlib.sha256(content).hexdigest())
    data = read_verified(pin, size).data
    assert data == content
    assert not data.readonly
    assert read_verified_header(pin, 12_345) == content[:12_345]
    found, header = measure(path, 12_345)
    assert (found, bytes(header)) == (pin, content[:12_345])


def test_later_changes_do_not_matter(pin: Pin) -> None:
    """The bytes are private: the file may be overwritten, cut or deleted afterwards, and is not changed."""
    data = read_verified(pin, 10**9).data
    pin.path.write_bytes(b"x" * pin.nbytes)
    pin.path.write_bytes(b"")
    pin.path.unlink()
    assert data == CONTENT
    pin.path.write_bytes(CONTENT)
    data = read_verified(pin, 10**9).data
    data[:] = bytes(pin.nbytes)
    assert pin.path.read_bytes() == CONTENT


def test_path_swapped_while_reading(pin: Pin, tmp_path: Path) -> None:
    """A file put in the path's place during the read is never looked at."""
    other = tmp_path / "other"
    other.write_bytes(b"evil" * 50_000)

    def swap(done: int, _: int) -> None:
        if done == 10_000 and os.name != "nt":
            other.replace(pin.path)

    assert read_verified(pin, 10**9, swap).data == CONTENT


@pytest.mark.parametrize(
    "read", [lambda pin: read_verified(pin, 10**9), lambda pin: read_verified_header(pin, 99)]
)
def test_mismatches_name_what_failed(pin: Pin, read: object) -> None:
    """A wrong length and a wrong hash are two errors with the expected and the found value."""
    assert callable(read)
    with pytest.raises(
        LengthMismatchError, match=f"has {pin.nbytes} bytes, but {pin.nbytes + 1} are expected"
    ):
        read(changed(pin, nbytes=pin.nbytes + 1))
    with pytest.raises(LengthMismatchError):
        read(changed(pin, nbytes=pin.nbytes - 1))
    with pytest.raises(HashMismatchError, match=f"length agrees.*{pin.sha256} and {'0' * 64} is expected"):
        read(changed(pin, sha256="0" * 64))


@pytest.mark.parametrize("place", [0, 15_000, len(CONTENT) - 1])
def test_one_bit_is_noticed(pin: Pin, place: int) -> None:
    """One flipped bit anywhere is a hash mismatch."""
    content = bytearray(CONTENT)
    content[place] ^= 1
    pin.path.write_bytes(content)
    with pytest.raises(HashMismatchError):
        read_verified(pin, 10**9)


def test_cut_while_reading(pin: Pin) -> None:
    """A file that shrinks during the read is a length mismatch with the bytes that came."""

    def cut(done: int, _: int) -> None:
        if done == 10_000:
            os.truncate(pin.path, 60_000)

    with pytest.raises(LengthMismatchError, match="has 60000 bytes"):
        read_verified(pin, 10**9, cut)


def test_grown_while_reading(pin: Pin) -> None:
    """Bytes appended during the read are not part of the pinned file."""

    def grow(done: int, _: int) -> None:
        if done == 10_000:
            with pin.path.open("ab") as file:
                file.write(b"more")

    assert read_verified(pin, 10**9, grow).data == CONTENT


def test_budget_comes_first(pin: Pin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the budget is refused before it is opened or memory is taken."""
    monkeypatch.setattr(artifact, "_private_memory", None)
    with pytest.raises(BudgetError, match=f"has {pin.nbytes} bytes, but only {pin.nbytes - 1} bytes"):
        read_verified(pin, pin.nbytes - 1)
    with pytest.raises(BudgetError):
        read_verified(changed(pin, path=pin.path.parent / "none"), 5)


def test_memory_that_the_system_does_not_have() -> None:
    """An allocation that fails is a budget error."""
    with pytest.raises(BudgetError):
        artifact._private_memory(2**62)


def test_missing_file(pin: Pin, tmp_path: Path) -> None:
    """A file that is not there, or cannot be opened, is an artifact error with the path that was given."""
    missing = tmp_path / "none.gguf"
    with pytest.raises(ArtifactError, match=r"none\.gguf: No such file"):
        read_verified(changed(pin, path=missing), 10**9)
    with pytest.raises(ArtifactError):
        measure(tmp_path, 100)


@posix
def test_only_regular_files(pin: Pin, tmp_path: Path) -> None:
    """Folders, FIFOs (without waiting for a writer), sockets and devices are refused."""
    fifo, name = tmp_path / "fifo", tmp_path / "s"
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(name))
        for path in (tmp_path, fifo, name, Path("/dev/zero")):
            with pytest.raises(ArtifactError):
                read_verified(changed(pin, path=path), 10**9)


@posix
def test_links_to_a_regular_file(pin: Pin, tmp_path: Path) -> None:
    """What counts is the file that was opened: a link to it is fine, a link to a device is not."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.symlink_to(pin.path)
    bad.symlink_to("/dev/null")
    assert read_verified(changed(pin, path=good), 10**9).data == CONTENT
    with pytest.raises(ArtifactError, match="not a regular file"):
        read_verified(changed(pin, path=bad), 10**9)


@pytest.mark.parametrize(
    ("path", "nbytes", "sha256", "field"),
    [
        ("model.gguf", 1, "0" * 64, "model"),
        ("/a\0b", 1, "0" * 64, "model"),
        ("", 0, "0" * 64, "bytes"),
        ("", -1, "0" * 64, "bytes"),
        ("", 1, "0" * 63, "sha256"),
        ("", 1, "A" * 64, "sha256"),
        ("", 1, "0" * 64 + "\n", "sha256"),
        ("", 1, "", "sha256"),
    ],
)
def test_pins_check_themselves(path: str, nbytes: int, sha256: str, field: str) -> None:
    """A pin with a relative path, an impossible length or a bad digest cannot be made."""
    with pytest.raises(InvalidInputError) as caught:
        Pin(Path(path) if path else Path.cwd() / "m", nbytes, sha256)
    assert caught.value.field == field


def test_progress(pin: Pin) -> None:
    """Progress counts hashed bytes upwards to the whole, in the caller's thread."""
    calls: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        calls.append((done, total))

    read_verified(pin, 10**9, note)
    assert calls == [
        (min(done, pin.nbytes), pin.nbytes) for done in range(10_000, pin.nbytes + 10_000, 10_000)
    ]


def test_progress_may_stop_the_read(pin: Pin) -> None:
    """An exception out of the progress callback comes through and leaves no thread behind."""

    def stop(done: int, _: int) -> None:
        raise KeyboardInterrupt(done)

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        read_verified(pin, 10**9, stop)
    assert threading.active_count() == before


def test_failing_reads(pin: Pin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read error of the disk is an artifact error."""

    class Broken(FileIO):
        def readinto(self, _: object, /) -> int:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(artifact, "FileIO", Broken)
    with pytest.raises(ArtifactError, match="Input/output error"):
        read_verified(pin, 10**9)


def test_empty_file(tmp_path: Path) -> None:
    """An empty file cannot be pinned."""
    path = tmp_path / "empty"
    path.touch()
    with pytest.raises(ArtifactError, match="empty"):
        measure(path, 100)


def test_light_modules_do_not_load_numpy() -> None:
    """The launcher's part of the engine imports nothing outside the standard library."""
    code = (
        "import sys, engine.artifact, engine.manifest, engine.catalogue; "
        "sys.exit('numpy' in sys.modules or 'gguf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
