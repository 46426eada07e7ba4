"""Reads a pinned model file once, hashing every byte while it goes into private memory.

What was hashed is what runs: the file is opened once, never mapped, and nothing of it is handed out
before length and SHA-256 agreed with the pin, so no later change on disk can matter. It does not know
what a GGUF is, and it imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from engine.errors import (
    ArtifactError,
    BudgetError,
    HashMismatchError,
    InvalidInputError,
    LengthMismatchError,
)
from engine.paths import openable

CHUNK_BYTES = 4 * 1024 * 1024
READ_AHEAD = 3  # chunks that the reading thread may be in front of the hash

# No FIFO can hang the open, no terminal is adopted, no child gets the descriptor, no byte is translated.
OPEN_FLAGS = 0
for _name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):
    OPEN_FLAGS |= getattr(os, _name, 0)

Progress = Callable[[int, int], None]
"""Called as `progress(bytes_done, bytes_in_all)` from the thread that asked for the file."""


@dataclass(frozen=True)
class Pin:
    """The identity of a model file: absolute path, length in bytes and SHA-256 in lower-case hex."""

    path: Path
    nbytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not self.path.is_absolute() or "\0" in str(self.path):
            raise InvalidInputError("the model path must be absolute", field="model")
        if self.nbytes < 1:
            raise InvalidInputError(
                f"the expected length is {self.nbytes} bytes; it must be positive", field="bytes"
            )
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise InvalidInputError("the expected SHA-256 must be 64 lower-case hex digits", field="sha256")


@dataclass(frozen=True)
class VerifiedFile:
    """All bytes of the file that `pin` names, in private memory that may be written to."""

    pin: Pin
    data: memoryview


def read_verified(pin: Pin, memory_bytes: int, progress: Progress | None = None) -> VerifiedFile:
    """Reads the whole file into page-aligned memory of exactly its length.

    Raises `BudgetError` if the length is over `memory_bytes`, `ArtifactError` if there is no regular
    file to read, `LengthMismatchError` or `HashMismatchError`.
    """
    if pin.nbytes > memory_bytes:
        raise BudgetError(
            f"the model has {pin.nbytes} bytes, but only {memory_bytes} bytes of memory are allowed for it"
        )
    with _opened(pin.path) as file:
        _check_length(pin.nbytes, os.fstat(file.fileno()).st_size)
        data = _private_memory(pin.nbytes)
        digest = _hash_while_reading(file, pin.nbytes, data, progress)
    _check_hash(pin.sha256, digest)
    return VerifiedFile(pin, data)


def read_verified_header(pin: Pin, header_bytes_limit: int, progress: Progress | None = None) -> memoryview:
    """Hashes the whole file and keeps at most its first `header_bytes_limit` bytes.

    Raises the same errors as `read_verified`, except for the budget: memory is bounded by the limit.
    """
    with _opened(pin.path) as file:
        _check_length(pin.nbytes, os.fstat(file.fileno()).st_size)
        digest, kept = _hash_keeping_header(file, pin.nbytes, header_bytes_limit, progress)
    _check_hash(pin.sha256, digest)
    return kept


def measure(path: Path, header_bytes_limit: int, progress: Progress | None = None) -> tuple[Pin, memoryview]:
    """Finds the length and SHA-256 of a file that nobody has pinned yet, and keeps its first bytes.

    The pin says what the file is, not that it is the right one. Raises `ArtifactError`.
    """
    with _opened(path) as file:
        nbytes = os.fstat(file.fileno()).st_size
        if not nbytes:
            raise ArtifactError(f"{path} is empty")
        digest, kept = _hash_keeping_header(file, nbytes, header_bytes_limit, progress)
    return Pin(path, nbytes, digest), kept


@contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    """The file opened once; what the descriptor stands for must be a regular file."""
    try:
        file = FileIO(openable(path), opener=lambda name, flags: os.open(name, flags | OPEN_FLAGS))
    except OSError as error:
        raise ArtifactError(f"cannot open {path}: {error.strerror or error}") from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ArtifactError(f"{path} is not a regular file")
        yield file


def _check_length(expected: int, found: int) -> None:
    if found != expected:
        raise LengthMismatchError(f"the model file has {found} bytes, but {expected} are expected")


def _check_hash(expected: str, found: str) -> None:
    if found != expected:
        raise HashMismatchError(
            f"the length agrees, but the model file's SHA-256 is {found} and {expected} is expected"
        )


def _private_memory(nbytes: int) -> memoryview:
    """Zeroed, page-aligned, writable memory that belongs to no file and to no other process."""
    try:
        if sys.platform == "win32":
            return memoryview(mmap.mmap(-1, nbytes))
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError, OverflowError):
        raise BudgetError(f"the system does not give {nbytes} bytes of memory for the model") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):  # far fewer page faults while reading and computing
        with suppress(OSError):  # a kernel may be built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def _hash_keeping_header(
    file: FileIO, nbytes: int, limit: int, progress: Progress | None
) -> tuple[str, memoryview]:
    kept = _private_memory(min(limit, nbytes))
    ring = memoryview(bytearray(READ_AHEAD * CHUNK_BYTES))
    return _hash_while_reading(file, nbytes, ring, progress, kept), kept


def _hash_while_reading(
    file: FileIO, nbytes: int, target: memoryview, progress: Progress | None, kept: memoryview | None = None
) -> str:
    """SHA-256 of the file's first `nbytes`, which a second thread reads into `target` a few chunks ahead.

    A target smaller than the file is a ring of `READ_AHEAD` chunks, and `kept` then takes the first
    bytes. Both the read and the hash run without Python's lock, so they run at the same time.
    """
    digest = hashlib.sha256()
    reading: deque[tuple[memoryview, Future[int]]] = deque()
    reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model-reader")
    try:
        asked = hashed = 0
        while hashed < nbytes:
            while asked < nbytes and len(reading) < READ_AHEAD:
                place = asked % len(target)
                chunk = target[place : place + min(CHUNK_BYTES, nbytes - asked)]
                reading.append((chunk, reader.submit(_fill, file, chunk)))
                asked += len(chunk)
            chunk, filled = reading.popleft()
            if (count := filled.result()) < len(chunk):
                _check_length(nbytes, hashed + count)
            digest.update(chunk)
            if kept is not None and hashed < len(kept):
                kept[hashed : hashed + len(chunk)] = chunk[: len(kept) - hashed]
            hashed += len(chunk)
            if progress is not None:
                progress(hashed, nbytes)
    finally:
        reader.shutdown(wait=True, cancel_futures=True)
    return digest.hexdigest()


def _fill(file: FileIO, place: memoryview) -> int:
    """Reads until `place` is full or the file ends; returns the bytes read."""
    done = 0
    while done < len(place):
        try:
            count = file.readinto(place[done:])
        except OSError as error:
            raise ArtifactError(f"reading the model file failed: {error.strerror or error}") from None
        if not count:
            break
        done += count
    return done
