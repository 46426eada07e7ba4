"""The records of `bonsai-token-worker-v1` that both sides must agree on.

A worker states everything that decides its answers in the ready record, so that a client can compare it with
what it was told independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ContextError, InvalidInputError
from engine.tokenization import TextTokenizationPolicy, TokenBudget, validate_tokens
from engine.workers.frames import MAX_FRAME_BYTES

PROTOCOL = "bonsai-token-worker-v1"
MAX_REQUEST_ID = 2**64 - 1

# Operation → the type of its answer and the field that it reads.
OPERATIONS = {
    "count": ("count", "text"),
    "encode": ("encoded", "text"),
    "count_tokens": ("count", "token_ids"),
    "encode_tokens": ("encoded", "token_ids"),
}


@dataclass(frozen=True)
class WorkerConfig:
    """Everything that is fixed when a worker starts, but for the model."""

    policy: TextTokenizationPolicy
    max_frame_bytes: int  # of a request, without its LF

    def __post_init__(self) -> None:
        check_frame_bound(self.max_frame_bytes, "max_frame_bytes")


def check_frame_bound(nbytes: int, field: str) -> None:
    """Refuse a bound on frames that is not 1 byte to 1 MiB."""
    if not 1 <= nbytes <= MAX_FRAME_BYTES:
        raise InvalidInputError(
            f"the frame bound is {nbytes} bytes; 1 to {MAX_FRAME_BYTES} are allowed", field
        )


def ready_record(model_sha256: str, vocabulary_size: int, config: WorkerConfig) -> dict[str, Any]:
    """The first record of a worker."""
    budget = config.policy.budget
    return {
        "type": "ready",
        "protocol": PROTOCOL,
        "model_sha256": model_sha256,
        "vocabulary_size": vocabulary_size,
        "context": budget.context,
        "reserved_output_tokens": budget.reserved_output_tokens,
        "special_input": config.policy.special_input,
        "insert_special": config.policy.insert_special,
        "max_frame_bytes": config.max_frame_bytes,
    }


def error_record(request_id: int | None, error: str) -> dict[str, Any]:
    """`invalid_request` about a frame that is no request, `rejected_input` about a request's content."""
    return {"type": "error", "id": request_id, "error": error}


def is_same(found: object, expected: object) -> bool:
    """Whether two JSON values are equal and of the same types: 1 is neither 1.0 nor true."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(is_same(found[name], expected[name]) for name in found)
    return type(found) is type(expected) and found == expected


def is_answer(
    record: Mapping[str, Any], request: Mapping[str, Any], vocabulary_size: int, budget: TokenBudget
) -> bool:
    """Whether a record has exactly the fields of the answer to a request, with values that can be true."""
    answer_type = OPERATIONS[request["op"]][0]
    count, ids = record.get("prompt_token_count"), record.get("token_ids")
    expected = {"type": answer_type, "id": request["id"], "prompt_token_count": count}
    if answer_type == "encoded":
        expected["token_ids"] = ids
    if not is_same(record, expected) or type(count) is not int or not 0 <= count <= budget.prompt_tokens:
        return False
    if count != len(request.get("token_ids", range(count))):
        return False
    return answer_type == "count" or (
        isinstance(ids, list)
        and _count(ids, vocabulary_size, budget) == count
        and ids == request.get("token_ids", ids)
    )


def _count(ids: list[Any], vocabulary_size: int, budget: TokenBudget) -> int | None:
    try:
        return validate_tokens(ids, vocabulary_size, budget)
    except (InvalidInputError, ContextError):
        return None
