from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from engine.workers.frames import OversizedFrameError, UnterminatedFrameError
from engine.workers.inbox import MAX_WAITING, Inbox, is_reading

LIMIT = 8
SECONDS = 60


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The two ends of a real pipe; the writing one is unbuffered."""
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as reading, os.fdopen(sink, "wb", buffering=0) as writing:
        yield reading, writing


def rest_of(inbox: Inbox) -> list[bytes]:
    """All frames up to a clean end."""
    return list(iter(inbox.next, None))


def test_frames_in_order(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """Frames are given out as they came, and the end after them; more than may wait are not lost."""
    inbox = Inbox(pipe[0], LIMIT)
    frames = [b"%d" % number for number in range(3 * MAX_WAITING)]
    pipe[1].write(b"".join(frame + b"\n" for frame in frames))
    assert inbox.next() == b"0"
    assert not inbox.hangup.cancelled
    assert is_reading()
    pipe[1].close()
    assert rest_of(inbox) == frames[1:]
    assert inbox.hangup.cancelled


def test_the_end_is_noticed_before_the_frames_are_taken(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    """Whoever works on an earlier frame can see that nobody waits for the answer."""
    inbox = Inbox(pipe[0], LIMIT)
    pipe[1].write(b"a\nb\n")
    assert inbox.next() == b"a"
    pipe[1].close()
    for thread in threading.enumerate():
        if thread.name == "worker-inbox":
            thread.join(SECONDS)  # it gets to the end without our taking "b"
    assert inbox.hangup.cancelled
    assert not is_reading()
    assert rest_of(inbox) == [b"b"]


@pytest.mark.parametrize(
    ("data", "error"), [(b"a\nbc", UnterminatedFrameError), (b"a\n" + b"b" * 9, OversizedFrameError)]
)
def test_failures_come_after_the_frames(
    pipe: tuple[BinaryIO, BinaryIO], data: bytes, error: type[Exception]
) -> None:
    """What ends the input is raised where the frames are taken, and raises the flag as an end does."""
    inbox = Inbox(pipe[0], LIMIT)
    pipe[1].write(data)
    pipe[1].close()
    assert inbox.next() == b"a"
    with pytest.raises(error):
        inbox.next()
    assert inbox.hangup.cancelled
