"""A conversation and the wishes for rendering it, as plain values; `check_messages` is their contract.

Nothing here knows how any model writes a conversation down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engine.errors import InvalidInputError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[str, ...] = get_args(Role)
PLAIN_ROLES = ROLES[:3]


@dataclass(frozen=True)
class ToolCall:
    """A function that an assistant called; the values of `arguments` are those that JSON has."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class Message:
    """One turn; with the role tool, one result of a call.

    `reasoning_content` is what an assistant thought before it answered with `content` and `tool_calls`.
    """

    role: Role
    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class ChatOptions:
    """Wishes of the caller; None leaves a choice to the template.

    enable_thinking     whether the model may think before it answers
    reasoning_effort    how much it should think, in the template's own words
    preserve_thinking   whether earlier answers keep their reasoning in the prompt
    tools               what the assistant may call, each as the JSON object that describes it
    """

    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    preserve_thinking: bool | None = None
    tools: tuple[Mapping[str, object], ...] = ()
    add_generation_prompt: bool = True

    def refuse(self, template: str, *fields: str) -> None:
        """Refuse wishes that the named template could only ignore."""
        for field in fields:
            if getattr(self, field) not in (None, False, ()):
                raise InvalidInputError(f"the chat template {template!r} does not support {field}", field)


def check_messages(messages: Sequence[Message], *, tools: bool = False) -> None:
    """Refuse an empty conversation, unknown roles and anything but text, naming the message.

    Without `tools`, which formats that render them set, calls and their results are refused too.
    """
    if not messages:
        raise InvalidInputError("a conversation needs at least one message", "messages")
    roles = ROLES if tools else PLAIN_ROLES
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.role not in roles:
            raise InvalidInputError(f"{path}.role must be one of {', '.join(roles)}", f"{path}.role")
        _check_text(message.content, f"{path}.content")
        if message.reasoning_content is not None:
            _check_assistant(message, path, "reasoning_content")
            _check_text(message.reasoning_content, f"{path}.reasoning_content")
        if message.tool_calls:
            _check_assistant(message, path, "tool_calls")
            if not tools:
                field = f"{path}.tool_calls"
                raise InvalidInputError(f"{field} cannot be written in this chat template", field)
            for number, call in enumerate(message.tool_calls):
                _check_call(call, f"{path}.tool_calls[{number}]")


def json_text(value: object, path: str) -> str:
    """JSON on one line, with a space after each comma and colon and no ASCII escapes."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InvalidInputError(f"{path} must be a value that JSON has", path) from None
    _check_text(text, path)
    return text


def _check_assistant(message: Message, path: str, field: str) -> None:
    if message.role != "assistant":
        raise InvalidInputError(f"{path}.{field} is only known for the role assistant", f"{path}.{field}")


def _check_call(call: ToolCall, path: str) -> None:
    _check_text(call.name, f"{path}.name")
    json_text(call.arguments, f"{path}.arguments")
    for name in call.arguments:
        _check_text(name, f"{path}.arguments")


def _check_text(value: object, path: str) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"{path} must be a string", path)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{path} holds half of a surrogate pair, which is no character", path
        ) from None
