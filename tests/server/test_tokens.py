"""`/v1/tokenize` and `/v1/detokenize`."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.server.raw_http import post
from tests.server.scripted import EOS

TOKENIZE, DETOKENIZE = "/v1/tokenize", "/v1/detokenize"


def test_a_text_becomes_exact_ids(port: int) -> None:
    """With the policies that were used, and the numbers that a caller plans with."""
    answer = post(port, TOKENIZE, {"text": "hé<eos>", "reserved_output_tokens": 100}).json()
    assert answer == {
        "model": "Scripted",
        "model_sha256": "ab" * 32,
        "token_ids": list("hé<eos>".encode()),
        "token_count": 8,
        "context": 4096,
        "reserved_output_tokens": 100,
        "input_mode": "text",
        "special_input": "literal",
        "insert_special": "none",
    }
    answer = post(
        port, TOKENIZE, {"text": "a<eos>", "special_input": "parse", "insert_special": "model"}
    ).json()
    assert answer["token_ids"] == [97, EOS, EOS]
    assert post(port, TOKENIZE, {"text": ""}).json()["token_ids"] == []


def test_a_conversation_is_counted_as_chat_would_send_it(port: int) -> None:
    """The same ids as the prompt of a chat completion."""
    answer = post(port, TOKENIZE, {"messages": [{"role": "user", "content": "hi"}]}).json()
    assert answer["token_ids"] == [*b"userhi", EOS]
    assert answer["input_mode"] == "messages"
    assert answer["chat_template"] == "scripted"


@pytest.mark.parametrize(
    ("request_", "param", "code"),
    [
        ({}, "text", "invalid_value"),
        ({"text": "a", "messages": []}, "text", "invalid_value"),
        ({"text": 1}, "text", "invalid_type"),
        ({"text": "a", "reserved_output_tokens": -1}, "reserved_output_tokens", "invalid_value"),
        ({"text": "a", "reserved_output_tokens": 4096}, None, "context_length_exceeded"),
        ({"text": "a" * 4097}, None, "context_length_exceeded"),
        ({"text": "a", "reasoning_effort": "low"}, "reasoning_effort", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": "a"}], "special_input": "parse"},
            "special_input",
            "invalid_value",
        ),
        ({"text": "a", "temperature": 1}, "temperature", "unknown_parameter"),
    ],
)
def test_wrong_requests_are_refused(
    port: int, request_: dict[str, Any], param: str | None, code: str
) -> None:
    """With the field, and the context with its numbers."""
    response = post(port, TOKENIZE, request_)
    assert response.status == 400
    assert (response.error()["param"], response.error()["code"]) == (param, code)


def test_ids_become_exact_bytes_and_text(port: int) -> None:
    """Bytes are exact; the text has U+FFFD for what is no UTF-8."""
    answer = post(port, DETOKENIZE, {"token_ids": [0xC3, 0xA9, 0xFF, 97]}).json()
    assert base64.b64decode(answer["bytes"]) == b"\xc3\xa9\xffa"
    assert answer["text"] == "é\ufffda"
    assert post(port, DETOKENIZE, {"token_ids": []}).json()["text"] == ""


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({}, "token_ids"),
        ({"token_ids": "a"}, "token_ids"),
        ({"token_ids": [1, 1 << 31]}, "token_ids[1]"),
        ({"token_ids": [-1]}, "token_ids[0]"),
        ({"token_ids": [1.0]}, "token_ids[0]"),
        ({"token_ids": [True]}, "token_ids[0]"),
        ({"token_ids": [1], "model": "other"}, "model"),
    ],
)
def test_wrong_ids_are_refused(port: int, request_: dict[str, Any], param: str) -> None:
    """With the path of the id."""
    response = post(port, DETOKENIZE, request_)
    assert response.status in (400, 404)
    assert response.error()["param"] == param
