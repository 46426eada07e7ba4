"""Reads one text prompt from a file or stream, exactly and within a bound.

Every byte of valid UTF-8 is kept, line ends and a byte-order mark included. Nothing is returned of an
input that is empty, too long or malformed. Deadlines and rewinding belong to the caller.
"""

from __future__ import annotations

from typing import BinaryIO

from engine.errors import InvalidInputError

MAX_PROMPT_BYTES = 1024 * 1024


def read_prompt(stream: BinaryIO) -> str:
    """All text up to the stream's end; takes at most 1 MiB and one byte from it.

    Raises `InvalidInputError`, or an `OSError` of the original kind with a message of our own.
    """
    return check_prompt(read_bounded(stream, MAX_PROMPT_BYTES, "prompt"))


def check_prompt(raw: bytes) -> str:
    """The text of a prompt's bytes, or `InvalidInputError` if it is empty, too long or not UTF-8."""
    if not raw:
        raise InvalidInputError("the prompt is empty", field="prompt")
    if len(raw) > MAX_PROMPT_BYTES:
        raise InvalidInputError(f"the prompt is larger than {MAX_PROMPT_BYTES} bytes", field="prompt")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInputError("the prompt is not valid UTF-8", field="prompt") from None


def read_bounded(stream: BinaryIO, limit: int, what: str) -> bytes:
    """The stream's bytes up to its end, or `limit + 1` of them if there are more."""
    parts: list[bytes] = []
    left = limit + 1
    while left:
        try:
            part = stream.read(left)
        except OSError as error:
            raise OSError(error.errno, f"the {what} cannot be read") from None
        if part is None:  # a stream that would have to wait
            raise BlockingIOError(f"the {what} cannot be read")
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
