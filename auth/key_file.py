"""Reading a key from a private file or a stream, and writing a new key file.

On POSIX systems a file that its group or others may touch is refused; Windows has no such mode bits, and
there the file is as private as its folder. Nothing here prints or logs a key.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from auth.errors import KeyFileError, KeyFormatError
from auth.keys import MAX_LENGTH, Key

_READ_BYTES = MAX_LENGTH + 3  # room to notice that a file is too long, whatever it ends with


def read_key_file(path: Path) -> Key:
    """Read the key at `path`: one line, with or without a line feed at its end."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NONBLOCK", 0)  # a named pipe must be refused, not waited for
    try:
        descriptor = os.open(path, flags)
        try:
            _check_private(path, os.fstat(descriptor))
            data = os.read(descriptor, _READ_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise KeyFileError(f"cannot read the key file {path}: {_reason(error)}") from None
    try:
        return _parse(data)
    except KeyFormatError as error:
        raise KeyFormatError(f"{error}, in the key file {path}") from None


def read_key_stream(stream: BinaryIO) -> Key:
    """Read the key as the first line of `stream` (standard input); the rest of the stream stays unread."""
    try:
        return _parse(stream.readline(_READ_BYTES))
    except KeyFormatError as error:
        raise KeyFormatError(f"{error}, on standard input") from None


def write_key_file(path: Path, key: Key) -> None:
    """Write `key` to a new file of mode 0600; an existing file, or a link there, is never touched."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} exists already; remove it first or choose another name") from None
    except OSError as error:
        raise KeyFileError(f"cannot create {path}: {_reason(error)}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            if os.name == "posix":
                os.fchmod(descriptor, 0o600)
            file.write(key.reveal().encode("ascii") + b"\n")
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise KeyFileError(f"cannot write {path}: {_reason(error)}") from None


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(
            f"the key file {path} is not a regular file; a key from a pipe belongs on standard input"
        )
    mode = stat.S_IMODE(status.st_mode)
    if os.name == "posix" and mode & 0o077:
        raise KeyFileError(
            f"the key file {path} has mode {mode:04o}, so others may read or change it; run chmod 600 on it"
        )


def _parse(data: bytes) -> Key:
    line = data.removesuffix(b"\n")
    if len(line) > MAX_LENGTH:
        raise KeyFormatError(f"the key is longer than {MAX_LENGTH} characters")
    return Key(line.decode("latin-1"))  # what is not ASCII is no key either way, and is told so


def _reason(error: OSError) -> str:
    return error.strerror or "the system gave no reason"
