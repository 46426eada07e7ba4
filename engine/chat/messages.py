"""A conversation and the wishes for rendering it, as plain values; `check_messages` is their contract.

Nothing here knows how any model writes a conversation down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from engine.errors import InvalidInputError

Role = Literal["system", "user", "assistant"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True)
class Message:
    """One turn. `reasoning_content` is what an assistant thought before it answered with `content`."""

    role: Role
    content: str
    reasoning_content: str | None = None


@dataclass(frozen=True)
class ChatOptions:
    """Wishes of the caller; None leaves a choice to the template.

    enable_thinking     whether the model may think before it answers
    reasoning_effort    how much it should think, in the template's own words
    preserve_thinking   whether earlier answers keep their reasoning in the prompt
    """

    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    preserve_thinking: bool | None = None
    add_generation_prompt: bool = True

    def refuse(self, template: str, *fields: str) -> None:
        """Refuse wishes that the named template could only ignore."""
        for field in fields:
            if getattr(self, field) not in (None, False):
                raise InvalidInputError(f"the chat template {template!r} does not support {field}", field)


def check_messages(messages: Sequence[Message]) -> None:
    """Refuse an empty conversation, unknown roles and anything but text, naming the message."""
    if not messages:
        raise InvalidInputError("a conversation needs at least one message", "messages")
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.role not in ROLES:
            raise InvalidInputError(f"{path}.role must be one of {', '.join(ROLES)}", f"{path}.role")
        _check_text(message.content, f"{path}.content")
        if message.reasoning_content is not None:
            if message.role != "assistant":
                raise InvalidInputError(
                    f"{path}.reasoning_content is only known for the role assistant",
                    f"{path}.reasoning_content",
                )
            _check_text(message.reasoning_content, f"{path}.reasoning_content")


def _check_text(value: object, path: str) -> None:
    if not isinstance(value, str):
        raise InvalidInputError(f"{path} must be a string", path)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInputError(
            f"{path} holds half of a surrogate pair, which is no character", path
        ) from None
