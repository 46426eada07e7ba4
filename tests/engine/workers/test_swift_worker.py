from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from engine.chat import Message
from engine.errors import EngineFaultError, PoisonedError
from engine.runtime import Cancellation
from engine.swift import SwiftSession
from engine.workers.swift_worker import SwiftWorker
from tests.engine.swift.models import STORY, stories
from tests.engine.workers.swift_processes import complete, count

PROMPT = {"prompt_token_count": 22}


class Broken(io.BytesIO):
    """A pipe whose reader is gone after `lines` lines; counts attempts."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines = lines
        self.attempts = 0

    def write(self, data: Any) -> int:
        """One line, or an error."""
        self.attempts += 1
        if self.attempts > self.lines:
            raise BrokenPipeError
        return super().write(data)


class Piecewise(SwiftSession):
    """Hands out given pieces of text, then does what it is told to."""

    pieces: tuple[str, ...] = ()
    after: Callable[[], None] | None = None

    def generate(self, prepared: Any, *, on_text: Any = None, **options: Any) -> Any:
        """The pieces first."""
        for piece in self.pieces:
            on_text(piece)
        if self.after is not None:
            self.after()
        return super().generate(prepared, on_text=on_text, **options)


def answered(worker: SwiftWorker, sink: io.BytesIO, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The records that answer a request."""
    start = len(sink.getvalue())
    worker.answer(json.dumps(request).encode())
    return [json.loads(line) for line in sink.getvalue()[start:].splitlines()]


def piecewise(*pieces: str, after: Callable[[], None] | None = None) -> SwiftSession:
    """The trained model, with more to say."""
    session = stories()
    session.__class__ = Piecewise
    session.pieces, session.after = pieces, after  # type: ignore[attr-defined]
    return session


def test_long_text_is_split() -> None:
    """A piece of 13,000 characters of three bytes is three deltas of at most 16,384 bytes, all whole."""
    sink = io.BytesIO()
    worker = SwiftWorker(piecewise("€" * 13_000), sink, Cancellation())
    texts = [record["text"] for record in answered(worker, sink, complete(1, STORY, 1))[:-1]]
    assert texts == ["€" * 5461, "€" * 5461, "€" * 2078, "Once"]


def raising(error: Exception) -> Callable[[], None]:
    """Something that fails."""

    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [EngineFaultError("sentinel"), PoisonedError("sentinel")])
def test_faults_are_told_once(error: Exception) -> None:
    """An engine fault after some text is one last record, without a diagnosis."""
    sink = io.BytesIO()
    worker = SwiftWorker(piecewise("abc", after=raising(error)), sink, Cancellation())
    assert answered(worker, sink, complete(1, STORY, 9)) == [
        {"type": "delta", "id": 1, "text": "abc"},
        {"type": "error", "id": 1, "error": "engine_fault"},
    ]


def test_mistakes_of_the_program_are_not_answered() -> None:
    """Whoever runs the worker learns of them; the client gets no record that could be taken for an end."""
    sink = io.BytesIO()
    worker = SwiftWorker(piecewise("abc", after=raising(KeyError("sentinel"))), sink, Cancellation())
    with pytest.raises(KeyError):
        worker.answer(json.dumps(complete(1, STORY, 9)).encode())
    assert sink.getvalue() == b'{"type":"delta","id":1,"text":"abc"}\n'


@pytest.mark.parametrize("lines", [0, 1, 9, 10])
def test_a_transport_that_fails(lines: int) -> None:
    """After the first write that fails none is tried; an answer that was not delivered leaves no trace."""
    session, sink = stories(), Broken(lines)
    with pytest.raises(BrokenPipeError):
        SwiftWorker(session, sink, Cancellation()).answer(json.dumps(complete(1, STORY, 10)).encode())
    assert sink.attempts == lines + 1
    if lines < 10:  # with ten, the ten tokens are out and only the completion is not
        prepared = session.chat.prepare(STORY, 60)
        fresh = stories()
        expected = fresh.generate(fresh.chat.prepare(STORY, 60), deadline=math.inf)
        assert session.generate(prepared, deadline=math.inf) == expected


def test_a_hung_up_client() -> None:
    """Nothing is computed for it any more, but what needs no computing is answered."""
    sink, hangup = io.BytesIO(), Cancellation()
    worker = SwiftWorker(stories(), sink, hangup)
    hangup.cancel()
    assert answered(worker, sink, complete(1, STORY, 9)) == [{"type": "error", "id": 1, "error": "cancelled"}]
    assert answered(worker, sink, count(2, STORY, 9)) == [{"type": "count", "id": 2, **PROMPT}]


def test_reasoning_of_earlier_answers() -> None:
    """It may be given beside the content, and the prompt has it."""
    sink = io.BytesIO()
    session = stories()
    worker = SwiftWorker(session, sink, Cancellation())
    answer = {"role": "assistant", "content": "Paris.", "reasoning_content": "The capital of France."}
    request = count(1, STORY, 1)
    request["messages"].append(answer)
    (record,) = answered(worker, sink, request)
    without = session.chat.count([*STORY, Message("assistant", "Paris.")], 1)
    assert record["prompt_token_count"] > without
