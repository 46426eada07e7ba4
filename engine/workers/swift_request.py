"""Requests of `bonsai-swift-worker-v1`: one JSON object a frame, with exactly the fields of its operation.

Types, ranges and roles are checked here; what a conversation may look like beyond that, and whether it fits
the context, is for the session to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from engine.chat.messages import PLAIN_ROLES, Message, Role
from engine.errors import InvalidInputError
from engine.strict_json import parse_object, without_strings
from engine.workers.swift_protocol import MAX_REQUEST_ID, MAX_TIMEOUT_SECONDS

MAX_TOKEN_COUNT = 2**64 - 1


@dataclass(frozen=True)
class CountRequest:
    """How many tokens is this conversation, with room for an answer?"""

    id: int
    messages: tuple[Message, ...]
    max_tokens: int


@dataclass(frozen=True)
class CompleteRequest:
    """Answer this conversation within a time."""

    id: int
    messages: tuple[Message, ...]
    max_tokens: int
    timeout_seconds: int


@dataclass(frozen=True)
class ResetRequest:
    """Be as at the start."""

    id: int


Request = CountRequest | CompleteRequest | ResetRequest


def parse_request(frame: bytes) -> Request:
    """The request in a frame, or an `InvalidInputError`."""
    fields = parse_object(frame)
    # No field may be negative, and to a JSON reader -0 is 0.
    if b"-" in frame and b"-" in without_strings(frame):
        raise InvalidInputError("a number is negative")
    operation = fields.pop("op", None)
    match operation:
        case "count":
            _check_fields(fields, "id", "messages", "max_tokens")
            return CountRequest(_id(fields), _messages(fields), _max_tokens(fields))
        case "complete":
            _check_fields(fields, "id", "messages", "max_tokens", "timeout_seconds")
            timeout = _integer(fields, "timeout_seconds", 1, MAX_TIMEOUT_SECONDS)
            return CompleteRequest(_id(fields), _messages(fields), _max_tokens(fields), timeout)
        case "reset":
            _check_fields(fields, "id")
            return ResetRequest(_id(fields))
    raise InvalidInputError("there is no such operation", "op")


def message_fields(message: Message) -> dict[str, str]:
    """A message as a request has it."""
    fields = {"role": message.role, "content": message.content}
    if message.reasoning_content is not None:
        fields["reasoning_content"] = message.reasoning_content
    return fields


def _check_fields(fields: dict[str, Any], *names: str) -> None:
    if fields.keys() != set(names):
        raise InvalidInputError(f"the fields must be op, {', '.join(names)}")


def _id(fields: dict[str, Any]) -> int:
    return _integer(fields, "id", 0, MAX_REQUEST_ID)


def _max_tokens(fields: dict[str, Any]) -> int:
    return _integer(fields, "max_tokens", 0, MAX_TOKEN_COUNT)


def _integer(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = fields[name]
    if type(value) is not int or not low <= value <= high:
        raise InvalidInputError(f"{name} must be an integer from {low} to {high}", name)
    return value


def _messages(fields: dict[str, Any]) -> tuple[Message, ...]:
    values = fields["messages"]
    if not isinstance(values, list):
        raise InvalidInputError("messages must be an array", "messages")
    return tuple(_message(value, f"messages[{index}]") for index, value in enumerate(values))


def _message(value: object, path: str) -> Message:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise InvalidInputError(f"{path} must be an object of strings", path)
    role = value.get("role")
    optional = {"reasoning_content"} if role == "assistant" else set()
    if role not in PLAIN_ROLES or value.keys() - optional != {"role", "content"}:
        raise InvalidInputError(f"{path} must have a known role and content", path)
    return Message(cast(Role, role), value["content"], value.get("reasoning_content"))
