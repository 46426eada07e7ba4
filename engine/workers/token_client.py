"""The other side of `bonsai-token-worker-v1`: asks a worker and believes nothing that does not add up.

The caller owns the worker's process, the streams, deadlines and shutdown. Errors say in fixed words what
went wrong; nothing of a prompt or an answer is in them. One thread at a time may use a client.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Self

from engine.errors import InvalidInputError
from engine.strict_json import is_unicode
from engine.tokenization import Encoded, validate_tokens
from engine.workers.connection import Connection, WorkerFaultError, WorkerMismatchError
from engine.workers.frames import OversizedFrameError
from engine.workers.token_protocol import (
    OPERATIONS,
    PROTOCOL,
    WorkerConfig,
    check_frame_bound,
    error_record,
    is_answer,
    is_same,
    ready_record,
)


class RejectedInputError(InvalidInputError):
    """The worker refused this request's content; the next one may be asked."""

    code = "rejected_input"


@dataclass(frozen=True)
class ExpectedWorker:
    """What the worker must say it is, known from elsewhere than from the worker.

    `model_sha256` is in lower-case hex; `response_frame_bytes` bounds the worker's records, which may be
    longer than its requests.
    """

    model_sha256: str
    vocabulary_size: int
    config: WorkerConfig
    response_frame_bytes: int

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.model_sha256):
            raise InvalidInputError("the expected SHA-256 must be 64 lower-case hex digits", "model_sha256")
        if self.vocabulary_size < 1:
            raise InvalidInputError("the vocabulary must have at least one token", "vocabulary_size")
        check_frame_bound(self.response_frame_bytes, "response_frame_bytes")


class TokenClient:
    """A connection to one worker, the expected one. After a `WorkerFaultError` it refuses everything."""

    def __init__(self, connection: Connection, expected: ExpectedWorker) -> None:
        self._connection = connection
        self._expected = expected
        self._budget = expected.config.policy.budget
        self._next_id = 1
        self._usable = True

    @classmethod
    def connect(cls, responses: IO[bytes], requests: IO[bytes], expected: ExpectedWorker) -> Self:
        """Read the ready record from `responses`, the worker's output; nothing is sent to `requests` yet.

        Both are buffered, blocking streams. Raises `WorkerMismatchError`, or `WorkerFaultError` if there is
        no ready record of this protocol.
        """
        connection = Connection(responses, requests, expected.response_frame_bytes)
        record = connection.receive()
        ready = ready_record(expected.model_sha256, expected.vocabulary_size, expected.config)
        if record.get("type") != "ready" or record.get("protocol") != PROTOCOL:
            raise WorkerFaultError("the worker's first record is not the ready record of this protocol")
        if not is_same(record, ready):
            raise WorkerMismatchError("the worker is ready for another model or with other settings")
        return cls(connection, expected)

    def count(self, text: str) -> int:
        """How many tokens `text`, which may be empty, is as a prompt. Raises as `encode` does."""
        count: int = self._ask("count", _checked_text(text))["prompt_token_count"]
        return count

    def encode(self, text: str) -> Encoded:
        """The ids of `text`, which may be empty, by the worker's policy.

        Raises `RejectedInputError`; an `InvalidInputError` for text that was not sent, because it has half
        of a surrogate pair or makes a frame that is too long; or `WorkerFaultError`.
        """
        return self._encoded(self._ask("encode", _checked_text(text)))

    def count_tokens(self, ids: Sequence[int]) -> int:
        """How many exact ids there are, checked on both sides. Raises as `encode_tokens` does."""
        count: int = self._ask("count_tokens", self._checked_ids(ids))["prompt_token_count"]
        return count

    def encode_tokens(self, ids: Sequence[int]) -> Encoded:
        """The same exact ids, of which there may be none, checked on both sides.

        Raises `InvalidInputError` or `ContextError` for ids that were not sent, because they are outside
        the vocabulary, do not fit the context or make a frame that is too long; otherwise as `encode` does.
        """
        return self._encoded(self._ask("encode_tokens", self._checked_ids(ids)))

    def into_parts(self) -> tuple[IO[bytes], IO[bytes]]:
        """The streams as `connect` took them; the client refuses everything from now on.

        After a `WorkerFaultError` a record may be half read or half written on them.
        """
        self._usable = False
        return self._connection.responses, self._connection.requests

    def _checked_ids(self, ids: Sequence[int]) -> list[int]:
        copy = list(ids)
        validate_tokens(copy, self._expected.vocabulary_size, self._budget)
        return copy

    def _ask(self, operation: str, content: str | list[int]) -> dict[str, Any]:
        """The answer, all of it checked. Whatever interrupts the exchange leaves the client refusing."""
        if not self._usable:
            raise WorkerFaultError("the connection to the worker has failed before or was given up")
        request = {"id": self._next_id, "op": operation, OPERATIONS[operation][1]: content}
        self._usable = False
        try:
            self._connection.send(request, self._expected.config.max_frame_bytes)
        except OversizedFrameError:  # nothing was sent
            self._usable = True
            raise
        record = self._connection.receive()
        if is_same(record, error_record(self._next_id, "rejected_input")):
            self._commit()
            raise RejectedInputError("the worker refused the input")
        if not is_answer(record, request, self._expected.vocabulary_size, self._budget):
            raise WorkerFaultError("the worker's record is no answer to the request")
        self._commit()
        return record

    def _commit(self) -> None:
        self._next_id += 1
        self._usable = True

    def _encoded(self, record: dict[str, Any]) -> Encoded:
        return Encoded(tuple(record["token_ids"]), self._budget.context, self._budget.reserved_output_tokens)


def _checked_text(text: str) -> str:
    if not is_unicode(text):
        raise InvalidInputError("the text holds half of a surrogate pair, which is no character", "text")
    return text
