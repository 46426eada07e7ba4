"""The other side of `bonsai-swift-worker-v1`: talks to one worker and believes nothing that does not add up.

The caller owns the worker's process, the streams, deadlines, cancellation (which is closing the worker's
input) and shutdown. Text is provisional until `complete` returns. One thread at a time may use a client.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any, Literal, Self

from engine.chat.messages import Message, check_messages
from engine.errors import EngineError, InvalidInputError
from engine.workers.connection import Connection, WorkerFaultError, WorkerMismatchError
from engine.workers.frames import OversizedFrameError
from engine.workers.swift_protocol import (
    BOUNDS,
    MAX_DELTA_BYTES,
    MAX_FRAME_BYTES,
    MAX_TIMEOUT_SECONDS,
    PROTOCOL,
    READY_FIELDS,
    RUNTIME,
)
from engine.workers.swift_request import message_fields

PROMPT_ERRORS = ("rejected_input", "context_length_exceeded")
COMPLETION_ERRORS = (*PROMPT_ERRORS, "deadline_exceeded", "cancelled", "engine_fault")


class RequestFailedError(EngineError):
    """The worker ended this request with an error; the next one may be asked. `error` is its word."""

    code = "request_failed"

    def __init__(self, error: str) -> None:
        super().__init__(f"the worker ended the request with {error}")
        self.error = error


@dataclass(frozen=True)
class ExpectedSwiftWorker:
    """What the worker must say it is, known from elsewhere than from the worker.

    `model_sha256` is in lower-case hex, `context` in tokens; `seed` is that of the draws.
    """

    model_sha256: str
    vocabulary_size: int
    context: int
    seed: int

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.model_sha256):
            raise InvalidInputError("the expected SHA-256 must be 64 lower-case hex digits", "model_sha256")


@dataclass(frozen=True)
class SwiftAnswer:
    """An answer that stands: its whole text, why it ended, and its counts of tokens."""

    text: str
    finish: Literal["stop", "length"]
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class SwiftClient:
    """A connection to one worker, which said `ready`. After a `WorkerFaultError` it refuses everything."""

    def __init__(self, connection: Connection, ready: dict[str, Any]) -> None:
        self.ready = MappingProxyType(ready)
        self._connection = connection
        self._next_id = 1
        self._usable = True

    @classmethod
    def connect(cls, responses: IO[bytes], requests: IO[bytes], expected: ExpectedSwiftWorker) -> Self:
        """Read the ready record from `responses`, the worker's output; nothing is sent to `requests` yet.

        Both are buffered, blocking streams. Raises `WorkerMismatchError`, or `WorkerFaultError` if there is
        no ready record of this protocol.
        """
        connection = Connection(responses, requests, MAX_FRAME_BYTES - 1)
        ready = connection.receive()
        _check_ready(ready, expected)
        return cls(connection, ready)

    def count(self, messages: Sequence[Message], max_tokens: int) -> int:
        """The prompt tokens of a conversation that leaves room for `max_tokens`.

        Raises `InvalidInputError` for what was not sent, `RequestFailedError`, or `WorkerFaultError`.
        """
        record = self._ask("count", PROMPT_ERRORS, **_conversation(messages, max_tokens))
        self._check(record, "count", "prompt_token_count")
        count = record["prompt_token_count"]
        self._believe(_is_count(count, 1, self.ready["context"] - max_tokens))
        self._commit()
        return int(count)

    def complete(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        timeout_seconds: int,
        on_delta: Callable[[str], object] | None = None,
    ) -> SwiftAnswer:
        """The answer to a conversation; `on_delta` gets its text as it comes, which is void if this raises.

        `timeout_seconds` is the worker's time for the request, 1 to 600. Raises as `count` does; what
        `on_delta` raises leaves the exchange unfinished and the client of no more use.
        """
        if not 1 <= timeout_seconds <= MAX_TIMEOUT_SECONDS:
            raise InvalidInputError(
                f"the timeout is {timeout_seconds} seconds; expected 1 to {MAX_TIMEOUT_SECONDS}",
                "timeout_seconds",
            )
        conversation = _conversation(messages, max_tokens)
        record = self._ask("complete", COMPLETION_ERRORS, **conversation, timeout_seconds=timeout_seconds)
        text: list[str] = []
        left = self.ready["max_output_bytes"]
        while record.get("type") == "delta":
            part = self._delta(record)
            left -= len(part.encode("utf-8"))
            self._believe(left >= 0)
            text.append(part)
            if on_delta is not None:
                on_delta(part)
            record = self._record(COMPLETION_ERRORS)
        answer = self._answer(record, "".join(text), max_tokens)
        self._commit()
        return answer

    def reset(self) -> None:
        """Put the worker back to its start. Raises `WorkerFaultError`."""
        self._check(self._ask("reset", ()), "reset")
        self._commit()

    def into_parts(self) -> tuple[IO[bytes], IO[bytes]]:
        """The streams as `connect` took them; the client refuses everything from now on.

        After a `WorkerFaultError` a record may be half read or half written on them.
        """
        self._usable = False
        return self._connection.responses, self._connection.requests

    def _ask(self, operation: str, errors: Collection[str], **fields: object) -> dict[str, Any]:
        """Send a request; its first record. Until `_commit`, whatever happens leaves the client refusing."""
        if not self._usable:
            raise WorkerFaultError("the connection to the worker has failed before or was given up")
        self._usable = False
        request = {"op": operation, "id": self._next_id, **fields}
        try:
            self._connection.send(request, MAX_FRAME_BYTES - 1)
        except OversizedFrameError:  # nothing was sent
            self._usable = True
            raise
        return self._record(errors)

    def _record(self, errors: Collection[str]) -> dict[str, Any]:
        """The next record, unless it is an error that ends the request."""
        record = self._connection.receive()
        if record.get("type") == "error":
            self._check(record, "error", "error")
            word = record["error"]
            self._believe(isinstance(word, str) and word in errors)
            self._commit()
            raise RequestFailedError(word)
        return record

    def _delta(self, record: dict[str, Any]) -> str:
        self._check(record, "delta", "text")
        text = record["text"]
        self._believe(isinstance(text, str) and 1 <= len(text.encode("utf-8")) <= MAX_DELTA_BYTES)
        return str(text)

    def _answer(self, record: dict[str, Any], text: str, max_tokens: int) -> SwiftAnswer:
        counts = ("prompt_token_count", "cached_token_count", "output_token_count")
        self._check(record, "completion", "finish", *counts)
        prompt, cached, output = (record[name] for name in counts)
        self._believe(
            record["finish"] in ("stop", "length")
            and _is_count(prompt, 1, self.ready["context"] - max_tokens)
            and _is_count(cached, 0, prompt - 1)
            and _is_count(output, 1 if text or record["finish"] == "length" else 0, max_tokens)
        )
        return SwiftAnswer(text, record["finish"], prompt, cached, output)

    def _check(self, record: dict[str, Any], kind: str, *fields: str) -> None:
        """Refuse a record that is not of this kind, for this request, with exactly these fields."""
        self._believe(
            record.keys() == {"type", "id", *fields}
            and record["type"] == kind
            and type(record["id"]) is int
            and record["id"] == self._next_id
        )

    def _believe(self, plausible: bool) -> None:
        if not plausible:
            raise WorkerFaultError("the worker's record is no answer to the request")

    def _commit(self) -> None:
        self._next_id += 1
        self._usable = True


def _check_ready(ready: dict[str, Any], expected: ExpectedSwiftWorker) -> None:
    if (ready.get("type"), ready.get("runtime"), ready.get("protocol")) != ("ready", RUNTIME, PROTOCOL):
        raise WorkerFaultError("the worker's first record is not the ready record of this protocol")
    if ready.keys() != READY_FIELDS.keys() or any(
        type(ready[name]) is not kind for name, kind in READY_FIELDS.items()
    ):
        raise WorkerFaultError("the worker's ready record has other fields than those of this protocol")
    if any(ready[name] != value for name, value in BOUNDS.items()):
        raise WorkerFaultError("the worker keeps other bounds than those of this protocol")
    model = (ready["model_sha256"], ready["vocabulary_size"], ready["context"])
    sampling = (ready["sampling"].get("mode"), str(ready["sampling"].get("seed")))
    if (
        model != (expected.model_sha256, expected.vocabulary_size, expected.context)
        or sampling != ("swift", str(expected.seed))
        or not ready["identity"].startswith(f"{expected.model_sha256}:")
    ):
        raise WorkerMismatchError(
            "the worker is ready with another model, vocabulary, context or seed than expected"
        )


def _conversation(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    """The fields of a request that are wrong on this side already if they are wrong at all."""
    check_messages(messages)
    if max_tokens < 1:
        raise InvalidInputError(f"max_tokens is {max_tokens}; expected at least 1", "max_tokens")
    return {"messages": list(map(message_fields, messages)), "max_tokens": max_tokens}


def _is_count(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high
