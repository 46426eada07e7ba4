from __future__ import annotations

import json
from typing import Any

import pytest

from engine.chat import Message
from engine.errors import InvalidInputError
from engine.workers.swift_request import (
    CompleteRequest,
    CountRequest,
    ResetRequest,
    message_fields,
    parse_request,
)

HELLO = {"role": "user", "content": "Hello"}
COUNT: dict[str, Any] = {"op": "count", "id": 1, "messages": [HELLO], "max_tokens": 8}
COMPLETE = COUNT | {"op": "complete", "timeout_seconds": 60}


def parsed(fields: dict[str, Any]) -> object:
    """The request that these fields are."""
    return parse_request(json.dumps(fields).encode())


def test_all_operations() -> None:
    """Every field arrives; ids are any 64-bit number; white space and CR do not matter."""
    messages = (Message("user", "Hello"),)
    assert parsed(COUNT) == CountRequest(1, messages, 8)
    assert parsed(COMPLETE) == CompleteRequest(1, messages, 8, 60)
    assert parsed({"op": "reset", "id": 2**64 - 1}) == ResetRequest(2**64 - 1)
    assert parse_request(b' { "op" : "reset" , "id" : 0 }\r') == ResetRequest(0)
    assert parsed(COMPLETE | {"timeout_seconds": 600}) == CompleteRequest(1, messages, 8, 600)


def test_messages() -> None:
    """All roles of plain text, and the reasoning of an assistant; writing them is the inverse."""
    messages = [
        {"role": "system", "content": ""},
        {"role": "assistant", "content": "b", "reasoning_content": "c"},
        {"role": "assistant", "content": "-\u2028😀"},
    ]
    request = parsed(COUNT | {"messages": messages})
    assert isinstance(request, CountRequest)
    assert request.messages == (
        Message("system", ""),
        Message("assistant", "b", "c"),
        Message("assistant", "-\u2028😀"),
    )
    assert [message_fields(message) for message in request.messages] == messages


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"op": "reset"},
        {"op": "stop", "id": 1},
        {"op": ["reset"], "id": 1},
        {"op": "reset", "id": 1, "max_tokens": 1},
        COUNT | {"timeout_seconds": 60},
        COUNT | {"stream": True},
        {key: value for key, value in COMPLETE.items() if key != "timeout_seconds"},
        COUNT | {"id": -1},
        COUNT | {"id": 2**64},
        COUNT | {"id": "1"},
        COUNT | {"id": 1.0},
        COUNT | {"id": True},
        COUNT | {"id": None},
        COUNT | {"max_tokens": None},
        COUNT | {"max_tokens": 2**64},
        COMPLETE | {"timeout_seconds": 0},
        COMPLETE | {"timeout_seconds": 601},
        COMPLETE | {"timeout_seconds": 1.5},
        COUNT | {"messages": HELLO},
        COUNT | {"messages": ["Hello"]},
        COUNT | {"messages": [{"role": "user"}]},
        COUNT | {"messages": [{"role": "user", "content": None}]},
        COUNT | {"messages": [{"role": "user", "content": ["Hello"]}]},
        COUNT | {"messages": [{"role": "tool", "content": "x"}]},
        COUNT | {"messages": [{"role": "developer", "content": "x"}]},
        COUNT | {"messages": [HELLO | {"name": "x"}]},
        COUNT | {"messages": [HELLO | {"reasoning_content": "x"}]},
        COUNT | {"messages": [{"role": "assistant", "content": "x", "tool_calls": []}]},
    ],
)
def test_wrong_fields(fields: dict[str, Any]) -> None:
    """Missing and unknown fields, other types and values out of range are no request."""
    with pytest.raises(InvalidInputError):
        parsed(fields)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b'{"op":"reset","id":1}{}',
        b'{"op":"reset","id":1,"id":1}',
        b'{"op":"reset","id":-0}',
        b'{"op":"reset","id":1e0}',
        b'{"op":"reset","id":01}',
        b'\xef\xbb\xbf{"op":"reset","id":1}',
        b'{"op":"reset","id":1,"\xff":1}',
        b'{"op":"count","id":1,"messages":[{"role":"user","content":"\\ud800"}],"max_tokens":8}',
    ],
)
def test_frames_that_are_no_json_object(frame: bytes) -> None:
    """Blank frames, trailing bytes, repeated keys, bad UTF-8 and half surrogate pairs are no request."""
    with pytest.raises(InvalidInputError):
        parse_request(frame)
