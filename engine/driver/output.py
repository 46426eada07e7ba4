"""Writes records to standard output as flushed JSON lines in UTF-8, whatever the system's encoding is."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from engine.json_line import to_json


def write_record(record: Mapping[str, Any]) -> None:
    """One compact JSON object on a line of its own. Raises `OSError` if it cannot be written."""
    write_text(to_json(record) + "\n")


def write_text(text: str) -> None:
    """Text with LF line ends, at once."""
    write_bytes(text.encode("utf-8"))


def write_bytes(content: bytes) -> None:
    """Bytes as they are, at once."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "there is no standard output")
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_error(message: str) -> None:
    """One line on standard error, if there is one, in UTF-8; bytes of a path that are not are escaped."""
    line = " ".join(message.splitlines())  # a path may hold line ends
    try:
        raw = line.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a surrogate pair, which Windows allows in a path
        raw = line.encode("utf-8", "backslashreplace")
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.buffer.write(raw.decode("utf-8", "backslashreplace").encode("utf-8") + b"\n")
            sys.stderr.buffer.flush()


def reader_is_gone(error: OSError) -> bool:
    """Whether a write failed because nobody reads the pipe any more."""
    # Windows says "invalid argument" where others say "broken pipe".
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and error.errno == errno.EINVAL)


def abandon_output() -> None:
    """After a failed write: let the interpreter flush into nothing, so that it does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
