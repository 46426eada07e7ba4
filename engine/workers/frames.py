"""Frames of a worker's conversation: JSON objects on one line each, ended by LF, bounded in length.

The bound counts the bytes before the LF, a CR among them. Nothing here parses a frame or knows who is on
the other side; deadlines belong to whoever owns the streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO

from engine.errors import InvalidInputError
from engine.json_line import to_json

MAX_FRAME_BYTES = 1 << 20


class OversizedFrameError(InvalidInputError):
    """A frame has more bytes than the bound allows."""

    code = "oversized_frame"


class UnterminatedFrameError(InvalidInputError):
    """The stream ended inside a frame."""

    code = "unterminated_frame"


class FrameReader:
    """Takes frames of at most `limit` bytes from a stream, and never more of it than one frame needs."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self._frame = bytearray()  # what is here of a frame whose LF has not come yet

    def read(self) -> bytes | None:
        """The next frame without its LF; None at a clean end of the stream.

        Raises `OversizedFrameError` as soon as the bound is passed, leaving the rest in the stream, and
        again on every later call; `UnterminatedFrameError` at an end inside a frame; or an `OSError`.
        """
        while len(self._frame) <= self._limit:
            part = self._stream.readline(self._limit + 1 - len(self._frame))
            if part is None:  # a stream that would have to wait
                raise BlockingIOError("the stream must be a blocking one")
            self._frame += part
            if part.endswith(b"\n"):
                return self._taken()[:-1]
            if not part:
                if self._taken():
                    raise UnterminatedFrameError("the input ends inside a frame")
                return None
        raise OversizedFrameError(f"a frame has more than {self._limit} bytes")

    def _taken(self) -> bytes:
        frame = bytes(self._frame)
        self._frame.clear()
        return frame


def write_frame(stream: IO[bytes], record: Mapping[str, object], limit: int | None = None) -> None:
    """Writes `record` as one flushed line; raises an `OSError` if the stream does not take all of it.

    Raises `OversizedFrameError`, with nothing written, if the line has more than `limit` bytes before
    its LF.
    """
    line = to_json(record).encode("utf-8")
    if limit is not None and len(line) > limit:
        raise OversizedFrameError(f"a frame of {len(line)} bytes is more than the {limit} allowed")
    left = memoryview(line + b"\n")
    while left:
        written = stream.write(left)
        if not written:  # a stream that would have to wait
            raise BlockingIOError("the stream must be a blocking one")
        left = left[written:]
    stream.flush()
