"""Answers the requests of `bonsai-token-worker-v1`: one JSON line in, one JSON line out, in order.

Every answer depends on its request and the session alone; ids are handed back and never remembered. What
was wrong with a request is not said, so that no text can leak through an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from engine.errors import ContextError, InvalidInputError
from engine.strict_json import parse_object, without_strings
from engine.token_input import MAX_TOKEN_ID
from engine.tokenization import TokenizationSession
from engine.workers.frames import FrameReader, UnterminatedFrameError, write_frame
from engine.workers.token_protocol import (
    MAX_REQUEST_ID,
    OPERATIONS,
    WorkerConfig,
    error_record,
    ready_record,
)

INVALID_REQUEST = error_record(None, "invalid_request")


@dataclass(frozen=True)
class Request:
    """A valid request: text, or exact ids that are unsigned 32-bit numbers."""

    id: int
    answer_type: str
    content: str | list[int]


def serve(session: TokenizationSession, max_frame_bytes: int, source: BinaryIO, sink: BinaryIO) -> None:
    """Say that the session is ready and answer until the input ends.

    Raises `OversizedFrameError` without reading the frame's rest, or the `OSError` of a stream.
    """
    config = WorkerConfig(session.policy, max_frame_bytes)
    write_frame(sink, ready_record(session.model_sha256, session.vocabulary_size, config))
    reader = FrameReader(source, max_frame_bytes)
    try:
        while (frame := reader.read()) is not None:
            write_frame(sink, answer(session, frame))
    except UnterminatedFrameError:
        write_frame(sink, INVALID_REQUEST)


def answer(session: TokenizationSession, frame: bytes) -> dict[str, Any]:
    """The record that answers the frame `frame`, given without its LF."""
    try:
        request = parse_request(frame)
    except InvalidInputError:
        return INVALID_REQUEST
    try:
        return _result(session, request)
    except (InvalidInputError, ContextError):
        return error_record(request.id, "rejected_input")


def parse_request(frame: bytes) -> Request:
    """The request in a frame, or an `InvalidInputError`."""
    fields = parse_object(frame)
    # No field may be negative, and to a JSON reader -0 is 0.
    if b"-" in frame and b"-" in without_strings(frame):
        raise InvalidInputError("a number is negative")
    operation = fields.get("op")
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise InvalidInputError("there is no such operation", "op")
    answer_type, content_field = OPERATIONS[operation]
    if fields.keys() != {"id", "op", content_field}:
        raise InvalidInputError(f"the fields must be id, op and {content_field}")
    if not _is_unsigned(fields["id"], MAX_REQUEST_ID):
        raise InvalidInputError("must be an unsigned 64-bit number", "id")
    content = fields[content_field]
    if content_field == "text" and not isinstance(content, str):
        raise InvalidInputError("must be a string", "text")
    if content_field == "token_ids" and not (
        isinstance(content, list) and all(_is_unsigned(token, MAX_TOKEN_ID) for token in content)
    ):
        raise InvalidInputError("must be an array of unsigned 32-bit numbers", "token_ids")
    return Request(fields["id"], answer_type, content)


def _is_unsigned(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _result(session: TokenizationSession, request: Request) -> dict[str, Any]:
    token_ids: Sequence[int]
    if isinstance(request.content, str):
        token_ids = session.encode(request.content).token_ids
    else:
        token_ids = request.content
        session.validate_tokens(token_ids)
    record = {"type": request.answer_type, "id": request.id, "prompt_token_count": len(token_ids)}
    return record | {"token_ids": token_ids} if request.answer_type == "encoded" else record
