"""Receipts over HTTP: asked for, put into the answer, and run again by the driver from a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.driver.main import main
from tests.server.raw_http import Events, parse_events, post
from tests.server.running import Running, running
from tests.server.test_model_backend import MODEL, load

CHAT, COMPLETION, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/v1/tokenize"
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
PENALTIES = {
    "temperature": 1.5,
    "min_p": 0.001,
    "top_k": 0,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.25,
    "logit_bias": {"10": -3, "20": 1.5},
}

Replay = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def real() -> Iterator[Running]:
    """A server with the small model, for all tests: the state of one answer meets the next prompt."""
    with running(load()) as server:
        yield server


@pytest.fixture
def replay(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Replay:
    """Saves a receipt and replays it with the driver; gives code and record."""

    def command(receipt: dict[str, Any], *options: str) -> tuple[int, dict[str, Any]]:
        path = tmp_path / "receipt.json"
        path.write_text(json.dumps(receipt, indent=1), "utf-8")
        model = receipt["model"]
        pin = ["--model", str(MODEL), "--bytes", str(model["bytes"]), "--sha256", model["sha256"]]
        code = main(["replay", str(path), *pin, "--threads", "1", *options])
        out, err = capfdbinary.readouterr()
        assert err == b""
        return code, json.loads(out)

    return command


def answer(real: Running, path: str, **fields: Any) -> dict[str, Any]:
    """A whole answer with a receipt."""
    response = post(real.port, path, {"max_tokens": 12, "receipt": True} | fields)
    assert response.status == 200, response.body
    found: dict[str, Any] = response.json()
    return found


def chat_ids(real: Running, tmp_path: Path) -> str:
    """A file with the ids of the conversation, as the server tells them."""
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(post(real.port, TOKENIZE, {"messages": MESSAGES}).json()["token_ids"]))
    return str(path)


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"seed": 7}, {}, PENALTIES])
def test_a_chat_is_replayed_from_its_ids(
    fields: dict[str, Any], real: Running, replay: Replay, tmp_path: Path
) -> None:
    """Whatever the sampling was, seed given or not, the receipt is enough to draw the same tokens."""
    found = answer(real, CHAT, messages=MESSAGES, **fields)
    receipt = found["receipt"]
    assert receipt["output"]["tokens"] == found["usage"]["completion_tokens"]
    assert receipt["prompt"]["tokens"] == found["usage"]["prompt_tokens"]
    assert receipt["prompt"]["input_mode"] == "tokens"
    code, record = replay(receipt, "--tokens-file", chat_ids(real, tmp_path), "--kernel", "numpy")
    assert (code, record["agrees"]) == (0, True)
    assert record["output_tokens"] == record["agreeing_tokens"] == receipt["output"]["tokens"]


def test_a_stream_has_it_in_its_last_choice(real: Running, replay: Replay) -> None:
    """The chunk with the reason has the receipt, which is the whole answer's, and no other chunk has it."""
    fields = {"prompt": "Hello", "seed": 3, "temperature": 2}
    whole = answer(real, COMPLETION, **fields)["receipt"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    body = {"max_tokens": 12, "receipt": True} | fields | options
    events: Events = parse_events(post(real.port, COMPLETION, body).body)
    holders = [event for event in events.objects if "receipt" in event]
    assert [holder["choices"][0]["finish_reason"] for holder in holders] == ["length"]
    assert holders[0]["receipt"] == whole
    assert replay(whole, "--prompt", "Hello")[1]["agrees"] is True


def test_policies_of_text_are_kept(real: Running, replay: Replay) -> None:
    """Text with parsed markers is encoded so again."""
    fields = {"prompt": "<|im_end|>x", "special_input": "parse", "insert_special": "model", "seed": 1}
    receipt = answer(real, COMPLETION, **fields)["receipt"]
    assert [receipt["prompt"][name] for name in ("input_mode", "special_input", "insert_special")] == [
        *("text", "parse", "model")
    ]
    assert replay(receipt, "--prompt", "<|im_end|>x")[1]["agrees"] is True


def test_a_stop_string_cuts_the_replay_too(real: Running, replay: Replay, tmp_path: Path) -> None:
    """Where the text ended the answer, the replay ends after the same token, without knowing the text."""
    fields = {"messages": MESSAGES, "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}
    text = answer(real, CHAT, **fields)["choices"][0]["message"]["content"]
    found = answer(real, CHAT, **fields, stop=text[5:8])
    receipt = found["receipt"]
    assert (receipt["output"]["finish"], receipt["output"]["stop_token"]) == ("stop", None)
    assert text[5:8] not in json.dumps(receipt)
    body = {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": False}}
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(post(real.port, TOKENIZE, body).json()["token_ids"]))
    code, record = replay(receipt, "--tokens-file", str(path))
    assert (code, record["agreeing_tokens"]) == (0, receipt["output"]["tokens"])


def test_another_seed_differs(real: Running, replay: Replay) -> None:
    """The driver says where an answer of the server's sampler parts with another seed."""
    receipt = answer(real, COMPLETION, prompt="Hello", seed=3, temperature=2, top_k=0)["receipt"]
    code, record = replay(receipt, "--prompt", "Hello", "--seed", "4")
    assert (code, record["agrees"], record["differs_in"]) == (11, False, "token")


def test_nobody_gets_one_unasked(real: Running) -> None:
    """Without the field, or with false, there is none; another value is refused."""
    for fields in ({}, {"receipt": False}, {"receipt": None}):
        response = post(real.port, COMPLETION, {"prompt": "x", "max_tokens": 1} | fields)
        assert "receipt" not in response.json()
    response = post(real.port, COMPLETION, {"prompt": "x", "receipt": 1})
    assert (response.status, response.error()["param"]) == (400, "receipt")
