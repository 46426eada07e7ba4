"""Answers the requests of `bonsai-swift-worker-v1`, one at a time and in order.

An answer's text goes out while it is generated and is provisional until the one record that ends the
request. What was wrong with a request is not said, so that no text can leak through an error.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, BinaryIO

from engine.errors import (
    CancelledError,
    ContextError,
    DeadlineError,
    EngineError,
    EngineFaultError,
    InvalidInputError,
)
from engine.runtime import Cancellation
from engine.swift import SwiftSession
from engine.workers.frames import UnterminatedFrameError, write_frame
from engine.workers.inbox import Inbox
from engine.workers.swift_protocol import (
    MAX_FRAME_BYTES,
    completion_record,
    count_record,
    delta_record,
    error_record,
    ready_record,
    reset_record,
    split_text,
)
from engine.workers.swift_request import CompleteRequest, CountRequest, Request, parse_request

INVALID_REQUEST = error_record(None, "invalid_request")

# The words that end a failed request. After `engine_fault` the worker should be reset or replaced.
ERRORS: Mapping[type[EngineError], str] = {
    InvalidInputError: "rejected_input",
    ContextError: "context_length_exceeded",
    DeadlineError: "deadline_exceeded",
    CancelledError: "cancelled",
    EngineFaultError: "engine_fault",
}


def serve(session: SwiftSession, source: BinaryIO, sink: BinaryIO) -> None:
    """Say that the session is ready and answer until the input ends, which cancels a running answer.

    Raises `OversizedFrameError`, or the `OSError` of a stream: then nothing more is written.
    """
    write_frame(sink, ready_record(session))
    inbox = Inbox(source, MAX_FRAME_BYTES - 1)
    worker = SwiftWorker(session, sink, inbox.hangup)
    try:
        while (frame := inbox.next()) is not None:
            worker.answer(frame)
    except UnterminatedFrameError:
        write_frame(sink, INVALID_REQUEST)


class SwiftWorker:
    """Writes to `sink` what a session answers; `hangup` cancels it."""

    def __init__(self, session: SwiftSession, sink: BinaryIO, hangup: Cancellation) -> None:
        self._session = session
        self._sink = sink
        self._hangup = hangup

    def answer(self, frame: bytes) -> None:
        """Write the records that answer a frame, given without its LF: any deltas, and one that ends it."""
        write_frame(self._sink, self._last_record(frame))

    def _last_record(self, frame: bytes) -> dict[str, Any]:
        try:
            request = parse_request(frame)
        except InvalidInputError:
            return INVALID_REQUEST
        try:
            return self._result(request)
        except tuple(ERRORS) as error:
            word = next(word for kind, word in ERRORS.items() if isinstance(error, kind))
            return error_record(request.id, word)

    def _result(self, request: Request) -> dict[str, Any]:
        match request:
            case CountRequest():
                count = self._session.chat.count(request.messages, request.max_tokens)
                return count_record(request.id, count)
            case CompleteRequest():
                return self._complete(request)
        self._session.reset()
        return reset_record(request.id)

    def _complete(self, request: CompleteRequest) -> dict[str, Any]:
        deadline = time.monotonic() + request.timeout_seconds
        write_text = partial(self._write_text, request.id)
        done = self._session.generate(
            self._session.chat.prepare(request.messages, request.max_tokens),
            deadline=deadline,
            cancellation=self._hangup,
            on_text=write_text,
        )
        write_text(done.rest)
        return completion_record(request.id, done)

    def _write_text(self, request_id: int, text: str) -> None:
        for part in split_text(text):
            write_frame(self._sink, delta_record(request_id, part))
