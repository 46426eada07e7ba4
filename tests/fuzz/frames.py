"""Frames out of any stream: the reader against a split of the whole bytes, however the stream gives them."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import strategies as st

from engine.workers.frames import FrameReader, OversizedFrameError, UnterminatedFrameError
from tests.fuzz.target import Target

END, UNTERMINATED, OVERSIZED = "end", "unterminated", "oversized"

PARTS = st.sampled_from(
    [b"\n", b"\n\n", b"\r\n", b"{}", b"a", b"\x00", b"\xff", "\u2028\x85".encode(), b"x" * 9]
)
STREAMS = st.lists(PARTS, max_size=20).map(b"".join) | st.binary(max_size=40)
CASES = st.tuples(STREAMS, st.integers(1, 12), st.integers(1, 7))


class Trickle(io.RawIOBase):
    """A raw stream that gives a few bytes at a time."""

    def __init__(self, content: bytes, step: int) -> None:
        self.content = io.BytesIO(content)
        self.step = step

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """A few bytes."""
        return self.content.readinto(memoryview(buffer)[: self.step])


def check(case: tuple[bytes, int, int]) -> None:
    """Frames and errors are those of the model, and no byte is taken beyond the frame that needs it."""
    raw, limit, step = case
    whole = io.BytesIO(raw)
    reader, trickled = FrameReader(whole, limit), FrameReader(io.BufferedReader(Trickle(raw, step)), limit)
    for event, taken in model(raw, limit):
        assert read(reader) == event
        assert whole.tell() == taken
        assert read(trickled) == event


def read(reader: FrameReader) -> bytes | str:
    """The next frame, or the name of what came instead."""
    try:
        frame = reader.read()
    except OversizedFrameError:
        return OVERSIZED
    except UnterminatedFrameError:
        return UNTERMINATED
    return END if frame is None else frame


def model(raw: bytes, limit: int) -> list[tuple[bytes | str, int]]:
    """What successive reads bring, each with the bytes taken by then; an end and an overrun come twice."""
    events: list[tuple[bytes | str, int]] = []
    *frames, rest = raw.split(b"\n")
    start = 0
    for frame in frames:
        if len(frame) > limit:
            return [*events, (OVERSIZED, start + limit + 1), (OVERSIZED, start + limit + 1)]
        start += len(frame) + 1
        events.append((frame, start))
    if len(rest) > limit:
        return [*events, (OVERSIZED, start + limit + 1), (OVERSIZED, start + limit + 1)]
    if rest:
        events.append((UNTERMINATED, len(raw)))
    return [*events, (END, len(raw)), (END, len(raw))]


TARGET = Target("frames", CASES, check)
