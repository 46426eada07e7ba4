from __future__ import annotations

import errno
import io
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInputError
from engine.prompt_input import MAX_PROMPT_BYTES, read_prompt


class Dribble(io.RawIOBase):
    """A raw stream that gives a few bytes at a time, and counts them."""

    def __init__(self, content: bytes, step: int) -> None:
        self.content, self.step, self.taken = content, step, 0

    def read(self, size: int = -1) -> bytes:
        """At most `step` bytes."""
        part = self.content[self.taken : self.taken + min(size, self.step)]
        self.taken += len(part)
        return part


class Failing(io.RawIOBase):
    """A stream whose reads fail."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def read(self, size: int = -1) -> bytes:
        """Never any bytes."""
        del size
        raise self.error


@given(st.text(min_size=1))
def test_text_is_exact(text: str) -> None:
    """Any text comes back as it is."""
    assert read_prompt(io.BytesIO(text.encode("utf-8"))) == text


def test_line_ends_and_mark_are_kept() -> None:
    """CR, LF, NUL and a byte-order mark are part of the text."""
    assert read_prompt(io.BytesIO(b"\xef\xbb\xbfa\r\nb\rc\0\n")) == "\ufeffa\r\nb\rc\0\n"


@pytest.mark.parametrize("content", [b"", b"\xff", b"ok \xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_empty_and_malformed(content: bytes) -> None:
    """Nothing at all, and anything that is not UTF-8, is refused."""
    with pytest.raises(InvalidInputError) as caught:
        read_prompt(io.BytesIO(content))
    assert caught.value.field == "prompt"


def test_bound() -> None:
    """1 MiB is the most; a longer input costs one byte more than that."""
    assert len(read_prompt(io.BytesIO(b"x" * MAX_PROMPT_BYTES))) == MAX_PROMPT_BYTES
    stream = io.BytesIO(b"x" * (MAX_PROMPT_BYTES + 500))
    with pytest.raises(InvalidInputError, match="larger than 1048576 bytes"):
        read_prompt(stream)
    assert stream.tell() == MAX_PROMPT_BYTES + 1


def test_short_reads_are_joined() -> None:
    """A stream may give its bytes in any portions, even inside a character."""
    assert read_prompt(cast(BinaryIO, Dribble("grüße €".encode(), 1))) == "grüße €"
    stream = Dribble(b"x" * (MAX_PROMPT_BYTES + 500), 100_000)
    with pytest.raises(InvalidInputError):
        read_prompt(cast(BinaryIO, stream))
    assert stream.taken == MAX_PROMPT_BYTES + 1


@pytest.mark.parametrize("number", [errno.EIO, errno.EINTR, errno.EACCES, errno.EPIPE])
def test_errors_keep_their_kind(number: int) -> None:
    """An I/O error keeps its kind and number, at once, with a message of our own."""
    original = OSError(number, "secret detail", "/secret/path")
    with pytest.raises(type(original)) as caught:
        read_prompt(cast(BinaryIO, Failing(original)))
    assert caught.value.errno == number
    assert "secret" not in str(caught.value)


def test_stream_that_would_wait() -> None:
    """A non-blocking stream without data is an error, not an empty prompt."""

    class Waiting(io.RawIOBase):
        def read(self, size: int = -1) -> bytes | None:
            del size
            return None

    with pytest.raises(BlockingIOError):
        read_prompt(cast(BinaryIO, Waiting()))
