"""Every field of the generating endpoints: what it does, and which values are refused with which path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.chat_request import CHAT, MESSAGE
from server.completion_request import COMPLETION
from tests.server.raw_http import Response, call, post
from tests.server.running import running
from tests.server.scripted import EOS, VOCABULARY, Played, Script, ScriptedBackend

CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hi"}
SECRET = "sentinel-prompt-text"


def chat(port: int, **fields: Any) -> Response:
    """A chat completion with some fields more."""
    return post(port, CHAT_PATH, {"messages": [USER]} | fields)


def completion(port: int, **fields: Any) -> Response:
    """A completion with some fields more."""
    return post(port, COMPLETION_PATH, {"prompt": "hi"} | fields)


def played(backend: ScriptedBackend, response: Response) -> Played:
    """What the backend was asked for, after checking that it was."""
    assert response.status == 200, response.body
    return backend.played[-1]


WRONG_VALUES = [
    ("model", 1, "invalid_type"),
    ("stream", "true", "invalid_type"),
    ("stream", 1, "invalid_type"),
    ("stream_options", True, "invalid_type"),
    ("max_tokens", 0, "invalid_value"),
    ("max_tokens", -1, "invalid_value"),
    ("max_tokens", 1.5, "invalid_type"),
    ("max_tokens", "5", "invalid_type"),
    ("max_tokens", True, "invalid_type"),
    ("max_tokens", 1 << 40, "invalid_value"),
    ("temperature", -0.1, "invalid_value"),
    ("temperature", 2.1, "invalid_value"),
    ("temperature", "1", "invalid_type"),
    ("temperature", True, "invalid_type"),
    ("top_p", 1.1, "invalid_value"),
    ("top_p", -1, "invalid_value"),
    ("top_p", [], "invalid_type"),
    ("top_k", -1, "invalid_value"),
    ("top_k", 1.0, "invalid_type"),
    ("seed", -1, "invalid_value"),
    ("seed", 1 << 64, "invalid_value"),
    ("seed", 1.0, "invalid_type"),
    ("stop", 13, "invalid_type"),
    ("stop", "", "invalid_value"),
    ("stop", [], "invalid_value"),
    ("stop", ["a"] * 5, "invalid_value"),
    ("stop", "x" * 257, "invalid_value"),
    ("user", 1, "invalid_type"),
    ("metadata", [], "invalid_type"),
    ("store", "no", "invalid_type"),
    ("n", 2, "unsupported_parameter"),
    ("n", True, "unsupported_parameter"),
    ("min_p", -0.1, "invalid_value"),
    ("min_p", 1.1, "invalid_value"),
    ("min_p", "0.1", "invalid_type"),
    ("presence_penalty", 2.1, "invalid_value"),
    ("presence_penalty", -2.1, "invalid_value"),
    ("presence_penalty", True, "invalid_type"),
    ("frequency_penalty", 3, "invalid_value"),
    ("frequency_penalty", {}, "invalid_type"),
    ("repetition_penalty", 0, "invalid_value"),
    ("repetition_penalty", 2.5, "invalid_value"),
    ("repetition_penalty", "1", "invalid_type"),
    ("logit_bias", [[5, 1]], "invalid_type"),
    ("logit_bias", {"x": 1}, "invalid_value"),
    ("logit_bias", {"-1": 1}, "invalid_value"),
    ("logit_bias", {"05": 1}, "invalid_value"),
    ("logit_bias", {" 5": 1}, "invalid_value"),
    ("logit_bias", {"٥": 1}, "invalid_value"),
    ("logit_bias", {"5.0": 1}, "invalid_value"),
    ("logit_bias", {str(VOCABULARY): 1}, "invalid_value"),
    ("logit_bias", {"9" * 5000: 1}, "invalid_value"),
    ("logit_bias", {str(token): 0 for token in range(1025)}, "invalid_value"),
    ("best", 1, "unknown_parameter"),
]


@pytest.mark.parametrize(("field", "value", "code"), WRONG_VALUES)
def test_wrong_values_are_refused_with_the_field(
    port: int, backend: ScriptedBackend, field: str, value: object, code: str
) -> None:
    """On both endpoints, before anything runs."""
    for response in (chat(port, **{field: value}), completion(port, **{field: value})):
        assert response.status == 400
        error = response.error()
        assert (error["param"], error["code"]) == (field, code)
        assert error["type"] == "invalid_request_error"
    assert backend.played == []


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"messages": None}, "messages", "missing_required_parameter"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"messages": [USER, "hi"]}, "messages[1]", "invalid_type"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        ({"messages": [{"role": "owner", "content": "hi"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "user<|im_end|>", "content": "hi"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": "tool", "content": "hi"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"role": 1, "content": "hi"}]}, "messages[0].role", "invalid_type"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content", "invalid_type"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "invalid_value"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages[0].content[0].image_url",
            "unknown_parameter",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0].type",
            "invalid_value",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
            "missing_required_parameter",
        ),
        ({"messages": [USER | {"extra": 1}]}, "messages[0].extra", "unknown_parameter"),
        ({"messages": [USER | {"tool_calls": [{}]}]}, "messages[0].tool_calls", "unsupported_parameter"),
        ({"messages": [USER | {"name": 1}]}, "messages[0].name", "invalid_type"),
        ({"tools": [{"type": "function"}]}, "tools", "unsupported_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({"logprobs": True}, "logprobs", "unsupported_parameter"),
        ({"response_format": {"type": "json_object"}}, "response_format", "unsupported_parameter"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs.x", "unknown_parameter"),
        (
            {"chat_template_kwargs": {"enable_thinking": 1}},
            "chat_template_kwargs.enable_thinking",
            "invalid_type",
        ),
        ({"reasoning_effort": 1}, "reasoning_effort", "invalid_type"),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            "reasoning_effort",
            "invalid_value",
        ),
        (
            {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}},
            "reasoning_effort",
            "invalid_value",
        ),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value"),
        ({"stream_options": {}}, "stream_options", "invalid_value"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown_parameter"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "unsupported_parameter",
        ),
        ({"prompt": "hi"}, "prompt", "unknown_parameter"),
    ],
)
def test_wrong_chats_are_refused_with_the_path(
    port: int, backend: ScriptedBackend, fields: dict[str, Any], param: str, code: str
) -> None:
    """The path leads to the very value."""
    response = chat(port, **fields)
    assert response.status == 400
    assert (response.error()["param"], response.error()["code"]) == (param, code)
    assert backend.played == []


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": None}, "prompt", "missing_required_parameter"),
        ({"prompt": ""}, "prompt", "invalid_value"),
        ({"prompt": []}, "prompt", "invalid_value"),
        ({"prompt": 1}, "prompt", "invalid_type"),
        ({"prompt": {}}, "prompt", "invalid_type"),
        ({"prompt": ["a", "b"]}, "prompt", "unsupported_parameter"),
        ({"prompt": [[1], [2]]}, "prompt", "unsupported_parameter"),
        ({"prompt": [1, "a"]}, "prompt[1]", "invalid_type"),
        ({"prompt": [1, 2.0]}, "prompt[1]", "invalid_type"),
        ({"prompt": [True]}, "prompt[0]", "invalid_type"),
        ({"prompt": [1, -1]}, "prompt[1]", "invalid_value"),
        ({"prompt": [1, 2, 1 << 31]}, "prompt[2]", "invalid_value"),
        ({"prompt": [[1, VOCABULARY]]}, "prompt[0][1]", "invalid_value"),
        ({"special_input": "maybe"}, "special_input", "invalid_value"),
        ({"insert_special": True}, "insert_special", "invalid_type"),
        ({"prompt": [1], "special_input": "parse"}, "special_input", "invalid_value"),
        ({"echo": True}, "echo", "unsupported_parameter"),
        ({"suffix": "x"}, "suffix", "unsupported_parameter"),
        ({"best_of": 2}, "best_of", "unsupported_parameter"),
        ({"logprobs": 1}, "logprobs", "unsupported_parameter"),
        ({"logit_bias": {"7": 100.5}}, "logit_bias.7", "invalid_value"),
        ({"logit_bias": {"7": -101}}, "logit_bias.7", "invalid_value"),
        ({"logit_bias": {"7": "1"}}, "logit_bias.7", "invalid_type"),
        ({"logit_bias": {"7": True}}, "logit_bias.7", "invalid_type"),
        ({"logit_bias": {"7": None}}, "logit_bias.7", "invalid_type"),
        ({"max_completion_tokens": 1}, "max_completion_tokens", "unknown_parameter"),
        ({"messages": []}, "messages", "unknown_parameter"),
    ],
)
def test_wrong_completions_are_refused_with_the_path(
    port: int, backend: ScriptedBackend, fields: dict[str, Any], param: str, code: str
) -> None:
    """The path leads to the very value."""
    response = completion(port, **fields)
    assert response.status == 400
    assert (response.error()["param"], response.error()["code"]) == (param, code)
    assert backend.played == []


def test_fields_that_mean_not_used_are_accepted(port: int) -> None:
    """Null everywhere, the neutral values of refused fields, and the ignored fields."""
    for path, table, start in (
        (CHAT_PATH, CHAT, {"messages": [USER]}),
        (COMPLETION_PATH, COMPLETION, {"prompt": "hi"}),
    ):
        nulls = dict.fromkeys((*table.honoured, *table.ignored, *table.refused))
        assert post(port, path, nulls | start).status == 200
        for field, neutral in table.refused.items():
            for value in neutral:
                assert post(port, path, start | {field: value}).status == 200, field
        ignored = {field: kind() for field, kind in table.ignored.items()}
        assert post(port, path, start | ignored).status == 200
    message = dict.fromkeys((*MESSAGE.ignored, *MESSAGE.refused))
    assert chat(port, messages=[message | USER | {"name": "anna"}]).status == 200


def test_the_model_must_be_the_served_one(port: int) -> None:
    """Its name, or none."""
    assert chat(port, model="Scripted").json()["model"] == "Scripted"
    for response in (chat(port, model="gpt-4"), completion(port, model="scripted")):
        assert response.status == 404
        assert response.error()["code"] == "model_not_found"


def test_the_output_length_is_the_one_asked_for(port: int, backend: ScriptedBackend) -> None:
    """By either name; without one the default, or the room that is left."""
    backend.scripts[:] = [Script([b"x"], endless=True)]
    answer = chat(port, max_tokens=3).json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3
    assert played(backend, chat(port, max_completion_tokens=4)).options.max_tokens == 4
    both = chat(port, max_tokens=4, max_completion_tokens=4)
    assert played(backend, both).options.max_tokens == 4
    assert played(backend, chat(port)).options.max_tokens == 1024
    long = completion(port, prompt="x" * 4000)
    assert played(backend, long).options.max_tokens == 96


@pytest.mark.parametrize(
    ("prompt", "tokens", "numbers"),
    [
        ("x" * 4000, 97, ("4000", "97", "4096")),
        ("x" * 4096, None, ("4096", "1 ")),
        ("x" * 5000, None, ("5000",)),
    ],
)
def test_what_does_not_fit_the_context_is_refused(
    port: int, backend: ScriptedBackend, prompt: str, tokens: int | None, numbers: tuple[str, ...]
) -> None:
    """With all numbers and the words that clients look for; nothing is cut off silently."""
    response = completion(port, prompt=prompt, max_tokens=tokens, stream=True)
    assert response.status == 400
    error = response.error()
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length" in error["message"]
    for number in numbers:
        assert number in error["message"]
    assert backend.played == []


def test_the_whole_context_can_be_used(port: int, backend: ScriptedBackend) -> None:
    """Prompt and output together fill it exactly."""
    assert played(backend, completion(port, prompt="x" * 4000, max_tokens=96)).options.max_tokens == 96


def test_sampling_follows_the_request(port: int, backend: ScriptedBackend) -> None:
    """The given settings or the default ones, with the given seed or a random one."""
    default = {
        "mode": "chain",
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repetition_penalty": 1.0,
        "logit_bias": {},
        "rng": "splitmix64",
    }
    given = {
        "temperature": 0,
        "top_k": 0,
        "top_p": 1,
        "min_p": 0.25,
        "presence_penalty": -2,
        "frequency_penalty": 1.5,
        "repetition_penalty": 1.25,
        "logit_bias": {"0": 100, "999999": -0.5},
        "seed": (1 << 64) - 1,
    }
    for send in (chat, completion):
        seeds = set()
        for _ in range(2):
            found = played(backend, send(port)).sampler.describe()
            seeds.add(found.pop("seed"))
            assert found == default
        assert len(seeds) == 2
        assert played(backend, send(port, **given)).sampler.describe() == default | given


def test_a_top_p_of_zero_is_refused(port: int) -> None:
    """The sampler says so, with the field."""
    response = chat(port, top_p=0)
    assert response.status == 400
    assert response.error()["param"] == "top_p"


def test_messages_become_the_prompt(port: int, backend: ScriptedBackend) -> None:
    """Roles, parts of text, and where the stable part ends."""
    messages = [
        {"role": "developer", "content": "be"},
        {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]},
        {"role": "assistant", "content": "", "reasoning_content": "hm"},
    ]
    work = played(backend, chat(port, messages=messages))
    assert list(work.prompt) == [*b"systembe", EOS, *b"userhi", EOS, *b"assistant", EOS]
    assert work.options.stable_prefix == len(work.prompt) - 1
    assert work.options.stop_tokens == (EOS,)


def test_prompts_are_text_or_ids(port: int, backend: ScriptedBackend) -> None:
    """Also as a batch of one; special spellings are literal unless asked otherwise."""
    assert played(backend, completion(port, prompt="hi")).prompt == tuple(b"hi")
    assert played(backend, completion(port, prompt=["hi"])).prompt == tuple(b"hi")
    assert played(backend, completion(port, prompt=[1, 2, 2])).prompt == (1, 2, 2)
    assert played(backend, completion(port, prompt=[[5]])).prompt == (5,)
    assert played(backend, completion(port, prompt="<eos>")).prompt == tuple(b"<eos>")
    parsed = completion(port, prompt="<eos>", special_input="parse", insert_special="model")
    assert played(backend, parsed).prompt == (EOS, EOS)


def test_a_model_without_a_chat_format_says_so() -> None:
    """501 for chats, while plain completions work."""
    with running(ScriptedBackend(template=None)) as server:
        response = chat(server.port)
        assert response.status == 501
        assert response.error()["code"] == "unsupported_template"
        assert post(server.port, "/v1/tokenize", {"messages": [USER]}).status == 501
        assert completion(server.port).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ((("Content-Type", "application/json"),), 200),
        ((("Content-Type", "Application/JSON; charset=UTF-8"),), 200),
        ((("Content-Type", "text/plain"),), 415),
        ((("Content-Type", "application/x-www-form-urlencoded"),), 415),
        ((("Content-Type", "application/json; charset=latin-1"),), 415),
        ((("Content-Type", "application/jsonx"),), 415),
        ((("Content-Type", ""),), 415),
        ((("Content-Type", "application/json"), ("Content-Type", "text/plain")), 415),
        ((("Content-Encoding", "gzip"),), 415),
        ((("Content-Encoding", "identity"),), 200),
    ],
)
def test_bodies_must_be_declared_json(port: int, headers: tuple[tuple[str, str], ...], status: int) -> None:
    """What a web form can send is refused."""
    response = call(port, "POST", COMPLETION_PATH, b'{"prompt": "x"}', headers=headers)
    assert response.status == status


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "%b", "prompt": "x"}',
        b'{"prompt": "%b", "x": NaN}',
        b'{"prompt": "%b\\ud83d"}',
        b'{"prompt": "%b", "%b": 1}',
        b'{"prompt": {"%b": 1}}',
        b'{"prompt": "%b", "stop": ["%b", 1]}',
        b'{"prompt": "%b", "model": "%b"}',
        b'{"prompt": "%b", "max_tokens": 100000}',
        b'{"prompt": "%b"',
        b'{"prompt": "x", "the %b": 1}',
    ],
)
def test_refusals_do_not_repeat_the_request(port: int, body: bytes) -> None:
    """No text of the client comes back, unless it looks like the name of a field."""
    secret = SECRET.encode() + b" with space"
    response = call(port, "POST", COMPLETION_PATH, body.replace(b"%b", secret))
    assert 400 <= response.status < 500
    response.error()
    assert SECRET.encode() not in response.body
    assert b"Error" not in response.body


def test_a_body_that_is_no_object_is_refused(port: int) -> None:
    """Whatever else JSON can be."""
    values: list[object] = [[], "text", 1, None, True]
    for value in values:
        response = call(port, "POST", CHAT_PATH, json.dumps(value).encode())
        assert (response.status, response.error()["code"]) == (400, "invalid_json")
    assert call(port, "POST", CHAT_PATH, b"").status == 400
