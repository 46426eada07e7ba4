"""The records of `bonsai-swift-worker-v1`, and the bounds that both sides keep.

The ready record states everything that decides an answer, so that a client can compare it with what it was
told independently. `docs/workers.md` describes all records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine.swift import SwiftCompletion, SwiftSession
from engine.swift.chat_session import MAX_MESSAGE_BYTES, MAX_MESSAGES

RUNTIME = "bonsai-prism-runtime"
PROTOCOL = "bonsai-swift-worker-v1"

MAX_FRAME_BYTES = 1_048_576  # of a request, its LF included
MAX_DELTA_BYTES = 16_384  # of the text in one delta, as UTF-8
MAX_TIMEOUT_SECONDS = 600
MAX_REQUEST_ID = 2**64 - 1

BOUNDS: Mapping[str, int] = {
    "max_frame_bytes": MAX_FRAME_BYTES,
    "max_messages": MAX_MESSAGES,
    "max_message_bytes": MAX_MESSAGE_BYTES,
    "max_delta_bytes": MAX_DELTA_BYTES,
    "max_timeout_seconds": MAX_TIMEOUT_SECONDS,
}

READY_FIELDS: Mapping[str, type] = {
    "type": str,
    "runtime": str,
    "protocol": str,
    "model_sha256": str,
    "model_bytes": int,
    "identity": str,
    "kernels": str,
    "row_workers": int,
    "vocabulary_size": int,
    "context": int,
    "chat_template": str,
    "starts_inside_think": bool,
    "stop_tokens": list,
    "sampling": dict,
    "max_output_bytes": int,
    **dict.fromkeys(BOUNDS, int),
}


def ready_record(session: SwiftSession) -> dict[str, Any]:
    """The first record of a worker."""
    model, chat = session.model, session.chat
    return {
        "type": "ready",
        "runtime": RUNTIME,
        "protocol": PROTOCOL,
        "model_sha256": model.identity.sha256,
        "model_bytes": model.identity.nbytes,
        "identity": str(model.identity),
        "kernels": model.kernels.name,
        "row_workers": model.kernels.threads,
        "vocabulary_size": model.tokenizer.vocabulary.size,
        "context": chat.context,
        "chat_template": chat.template.name,
        "starts_inside_think": chat.starts_inside_think,
        "stop_tokens": list(chat.stop_tokens),
        "sampling": session.describe_sampling(),
        "max_output_bytes": session.output_bytes,
        **BOUNDS,
    }


def count_record(request_id: int, prompt_tokens: int) -> dict[str, Any]:
    """The answer to `count`."""
    return {"type": "count", "id": request_id, "prompt_token_count": prompt_tokens}


def delta_record(request_id: int, text: str) -> dict[str, Any]:
    """A stretch of an answer's text."""
    return {"type": "delta", "id": request_id, "text": text}


def completion_record(request_id: int, done: SwiftCompletion) -> dict[str, Any]:
    """The end of an answer that stands."""
    return {
        "type": "completion",
        "id": request_id,
        "finish": done.finish,
        "prompt_token_count": done.prompt_tokens,
        "cached_token_count": done.cached_tokens,
        "output_token_count": done.output_tokens,
    }


def reset_record(request_id: int) -> dict[str, Any]:
    """The answer to `reset`."""
    return {"type": "reset", "id": request_id}


def error_record(request_id: int | None, error: str) -> dict[str, Any]:
    """The end of a request that failed; the id is None for a frame that is no request."""
    return {"type": "error", "id": request_id, "error": error}


def split_text(text: str, nbytes: int = MAX_DELTA_BYTES) -> Iterator[str]:
    """`text` in order, in parts of at most `nbytes` (4 or more) of UTF-8; no character is cut."""
    data = text.encode("utf-8")
    start = 0
    while start < len(data):
        end = min(start + nbytes, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:  # inside a character
            end -= 1
        yield data[start:end].decode("utf-8")
        start = end
