"""Frames that arrive while a worker is busy, and the end of the input, noticed at once.

A thread of its own reads, so that a client that hangs up can cancel what is being computed for it. Frames
wait in order; when too many do, the rest stays in the pipe until there is room.
"""

from __future__ import annotations

import threading
from queue import Queue
from typing import BinaryIO

from engine.runtime import Cancellation
from engine.workers.frames import FrameReader

MAX_WAITING = 16

_THREAD = "worker-inbox"


class Inbox:
    """Reads `stream` from now on; `hangup` is raised as soon as nothing more can come from it."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self.hangup = Cancellation()
        self._reader = FrameReader(stream, limit)
        self._waiting: Queue[bytes | Exception | None] = Queue(MAX_WAITING)
        threading.Thread(target=self._read, name=_THREAD, daemon=True).start()

    def next(self) -> bytes | None:
        """The next frame, waiting for it; None after the last one. Raises what `FrameReader.read` raises.

        Frames that came before an end or a failure are still given out.
        """
        item = self._waiting.get()
        if isinstance(item, Exception):
            raise item
        return item

    def _read(self) -> None:
        end: Exception | None = None
        try:
            while (frame := self._reader.read()) is not None:
                self._waiting.put(frame)
        except Exception as error:  # raised again where the frames are taken
            end = error
        self.hangup.cancel()
        self._waiting.put(end)


def is_reading() -> bool:
    """Whether an inbox of this process waits for its stream, which nothing can interrupt."""
    return any(thread.name == _THREAD for thread in threading.enumerate())
