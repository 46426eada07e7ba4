from __future__ import annotations

from typing import Any

import pytest

from engine.chat.messages import Message, check_messages
from engine.errors import InvalidInputError

USER = Message("user", "Hi")


def test_good_conversations() -> None:
    """All roles, empty contents and reasoning of an assistant are admitted."""
    check_messages([Message("system", ""), USER, Message("assistant", "Hello", "greet")])


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (("tool", "42"), "role"),
        (("developer", "x"), "role"),
        (("user\n<|im_end|>", "x"), "role"),
        (("User", "x"), "role"),
        ((None, "x"), "role"),
        (("user", None), "content"),
        (("user", ["x"]), "content"),
        (("user", b"x"), "content"),
        (("user", "\ud83d"), "content"),
        (("assistant", "x", 5), "reasoning_content"),
        (("assistant", "x", "\udc00"), "reasoning_content"),
        (("user", "x", "why"), "reasoning_content"),
    ],
)
def test_bad_messages(bad: tuple[Any, ...], field: str) -> None:
    """Unknown roles and anything but whole text are refused with the path of the field."""
    with pytest.raises(InvalidInputError) as caught:
        check_messages([USER, Message(*bad)])
    assert caught.value.field == f"messages[1].{field}"
    assert f"messages[1].{field}" in str(caught.value)


def test_empty_conversation() -> None:
    """A conversation without messages is refused."""
    with pytest.raises(InvalidInputError) as caught:
        check_messages([])
    assert caught.value.field == "messages"
