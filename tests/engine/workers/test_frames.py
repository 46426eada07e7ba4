from __future__ import annotations

import io
import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.workers.frames import FrameReader, OversizedFrameError, UnterminatedFrameError, write_frame


class Trickle(io.RawIOBase):
    """A raw stream that gives and takes at most a few bytes at a time."""

    def __init__(self, content: bytes, step: int) -> None:
        self.content = io.BytesIO(content)
        self.written = bytearray()
        self.step = step

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """A few bytes."""
        return self.content.readinto(memoryview(buffer)[: self.step])

    def write(self, content: Any) -> int:
        """A few bytes."""
        taken = bytes(content[: self.step])
        self.written += taken
        return len(taken)


def frames(content: bytes, limit: int) -> list[bytes]:
    """All frames up to a clean end."""
    reader = FrameReader(io.BytesIO(content), limit)
    return list(iter(reader.read, None))


def test_frames() -> None:
    """Frames end at LF alone: empty ones count, and CR, NUL and U+2028 are bytes like any other."""
    content = b"{}\n\nab\r\n\r\x00\xe2\x80\xa8\xff\n"
    assert frames(content, 100) == [b"{}", b"", b"ab\r", b"\r\x00\xe2\x80\xa8\xff"]
    assert frames(b"", 1) == []


def test_the_bound_counts_what_is_before_the_line_feed() -> None:
    """As many bytes as the bound are a frame, with a CR among them; one more is an error."""
    assert frames(b"1234\n123\r\n", 4) == [b"1234", b"123\r"]
    for content in (b"12345\n", b"1234\r\n", b"12345"):
        with pytest.raises(OversizedFrameError, match="more than 4 bytes"):
            frames(content, 4)


def test_the_rest_of_an_oversized_frame_is_left_alone() -> None:
    """The reader takes one byte more than the bound and stays refusing, as it is at no frame's start."""
    stream = io.BytesIO(b"ok\n" + b"x" * 1000 + b"\nok\n")
    reader = FrameReader(stream, 4)
    assert reader.read() == b"ok"
    for _ in range(2):
        with pytest.raises(OversizedFrameError):
            reader.read()
        assert stream.tell() == 3 + 5


def test_an_end_inside_a_frame() -> None:
    """It is told from a clean end, which it is followed by."""
    reader = FrameReader(io.BytesIO(b"ok\nnot"), 10)
    assert reader.read() == b"ok"
    with pytest.raises(UnterminatedFrameError):
        reader.read()
    assert reader.read() is None


@given(
    parts=st.lists(st.binary(max_size=20).filter(lambda part: b"\n" not in part)),
    step=st.integers(1, 50),
    buffered=st.booleans(),
)
def test_any_cutting_of_the_bytes(parts: list[bytes], step: int, buffered: bool) -> None:
    """However few bytes a stream gives at a time, the frames are the same."""
    raw = Trickle(b"".join(part + b"\n" for part in parts), step)
    stream: Any = io.BufferedReader(raw, 7) if buffered else raw
    reader = FrameReader(stream, 20)
    assert list(iter(reader.read, None)) == parts


def test_a_frame_is_given_out_before_more_bytes_come() -> None:
    """A reader of a real pipe waits for nothing after a frame's LF."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as stream, os.fdopen(sink, "wb", buffering=0) as peer:
        reader = FrameReader(stream, 100)
        peer.write(b"one\ntwo\nthr")
        assert [reader.read(), reader.read()] == [b"one", b"two"]
        peer.write(b"ee\n")
        assert reader.read() == b"three"


def test_a_failed_read_loses_nothing() -> None:
    """After an interruption the frame goes on where it was."""

    class Interrupted(io.BytesIO):
        parts: Iterable[bytes | OSError | None] = iter([b"he", OSError("interrupted"), b"llo", None, b"\n"])

        def readline(self, _size: int | None = -1, /) -> Any:
            part = next(iter(self.parts))
            if isinstance(part, OSError):
                raise part
            return part

    reader = FrameReader(Interrupted(), 10)
    for _ in range(2):
        with pytest.raises(OSError, match=r"interrupted|blocking"):
            reader.read()
    assert reader.read() == b"hello"


def test_writing() -> None:
    """A record is one compact line in UTF-8, in which line ends of any kind are escaped."""
    stream = io.BytesIO()
    write_frame(stream, {"a": "é\n\r\u2028", "b": [1, None]})
    assert stream.getvalue() == b'{"a":"\xc3\xa9\\n\\r\\u2028","b":[1,null]}\n'


def test_the_bound_of_writing() -> None:
    """A line of as many bytes as the bound is written, of one more nothing is."""
    stream = io.BytesIO()
    with pytest.raises(OversizedFrameError, match="frame of 8 bytes is more than the 7"):
        write_frame(stream, {"a": 12}, 7)
    assert stream.getvalue() == b""
    write_frame(stream, {"a": 12}, 8)
    assert stream.getvalue() == b'{"a":12}\n'


def test_streams_that_take_few_bytes() -> None:
    """All is written, however few bytes a raw stream takes at a time; one that takes none is an error."""
    raw: Any = Trickle(b"", 3)
    write_frame(raw, {"a": "b" * 20})
    assert raw.written == b'{"a":"' + b"b" * 20 + b'"}\n'
    stuck: Any = Trickle(b"", 0)
    with pytest.raises(BlockingIOError):
        write_frame(stuck, {})


def test_what_is_written_is_there() -> None:
    """A buffered pipe's reader gets the record at once."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb", buffering=0) as peer, os.fdopen(sink, "wb") as stream:
        write_frame(stream, {"a": 1})
        assert peer.read(100) == b'{"a":1}\n'
