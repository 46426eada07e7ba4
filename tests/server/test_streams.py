"""What a stream looks like on the wire, and that it tells the same as an answer in one piece."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import EngineFaultError
from server.backend import Reasoning
from tests.server.raw_http import Connection, Events, Response, parse_events, post
from tests.server.running import Running, running
from tests.server.scripted import Script, ScriptedBackend

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def stream(port: int, request: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[Response, Events]:
    """One streamed answer."""
    response = post(port, path, request | {"stream": True})
    assert response.status == 200, response.body
    return response, parse_events(response.body)


def text_of(events: Events, field: str = "content") -> str:
    """The text that a client of a chat stream puts together."""
    return "".join(
        choice["delta"].get(field) or "" for event in events.objects for choice in event["choices"]
    )


def test_a_chat_stream_has_the_agreed_shape(port: int) -> None:
    """A comment, the role, the text, the reason with an empty delta, the end marker; one id throughout."""
    response, events = stream(port, CHAT)
    assert response.header("content-type") == "text/event-stream; charset=utf-8"
    assert response.header("x-accel-buffering") == "no"
    assert response.header("connection") == "close"
    assert response.header("content-length") is None
    assert response.complete
    assert response.body.startswith(b": ")
    assert events.data[-1] == "[DONE]"
    choices = [event["choices"][0] for event in events.objects]
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": ""},
        {"content": "Hello"},
        {"content": " world"},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "stop"]
    assert {event["object"] for event in events.objects} == {"chat.completion.chunk"}
    assert len({(event["id"], event["created"], event["model"]) for event in events.objects}) == 1
    assert events.objects[0]["id"] == f"chatcmpl-{response.header('x-request-id')}"
    assert all("usage" not in event for event in events.objects)


def test_a_completion_stream_has_the_agreed_shape(port: int) -> None:
    """Text chunks, the reason with empty text, the end marker."""
    _, events = stream(port, {"prompt": "hi"}, "/v1/completions")
    choices = [event["choices"][0] for event in events.objects]
    assert [choice["text"] for choice in choices] == ["Hello", " world", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]
    assert {event["object"] for event in events.objects} == {"text_completion"}
    assert events.data[-1] == "[DONE]"


def test_usage_comes_only_when_asked_for(port: int) -> None:
    """Then every chunk has a null usage, and the last one has totals and no choices."""
    _, events = stream(port, CHAT | {"stream_options": {"include_usage": True}})
    *chunks, last = events.objects
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    _, events = stream(port, CHAT | {"stream_options": {"include_usage": False}})
    assert all(event["choices"] for event in events.objects)


def test_whole_answers_have_the_agreed_shape(port: int) -> None:
    """A chat completion and a completion in one piece."""
    chat = post(port, "/v1/chat/completions", CHAT).json()
    assert chat["object"] == "chat.completion"
    assert chat["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello world", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert chat["usage"]["total_tokens"] == 9
    completion = post(port, "/v1/completions", {"prompt": "hi"}).json()
    assert completion["object"] == "text_completion"
    assert completion["choices"] == [
        {"index": 0, "text": "Hello world", "logprobs": None, "finish_reason": "stop"}
    ]


@pytest.mark.parametrize("step", [0, 3])
def test_a_failed_generation_never_looks_finished(
    port: int, backend: ScriptedBackend, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One error event; no reason, no end marker, no final chunk; the connection is closed."""
    pieces: list[bytes | Exception] = [b"a", b"b", b"c", b"d"]
    pieces[step] = EngineFaultError("the logits are not finite")
    backend.scripts[:] = [Script(pieces), Script()]
    response, events = stream(port, CHAT)
    assert not response.complete
    assert "[DONE]" not in events.data
    *chunks, last = events.objects
    assert list(last) == ["error"]
    assert last["error"] == {
        "message": "the logits are not finite",
        "type": "server_error",
        "param": None,
        "code": "engine_fault",
    }
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert "Traceback" not in caplog.text
    assert text_of(stream(port, CHAT)[1]) == "Hello world"


def test_a_failed_generation_in_one_piece_is_a_plain_error(port: int, backend: ScriptedBackend) -> None:
    """500, and the client is told not to try again by itself."""
    backend.scripts[:] = [Script([b"a", EngineFaultError("the logits are not finite")]), Script()]
    response = post(port, "/v1/chat/completions", CHAT)
    assert response.status == 500
    assert response.header("x-should-retry") == "false"
    assert response.error()["code"] == "engine_fault"
    assert post(port, "/v1/chat/completions", CHAT).status == 200


def test_a_mistake_in_the_program_tells_nothing(
    port: int, backend: ScriptedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """An unexpected exception: a constant message, and the next request is served."""
    backend.scripts[:] = [Script([RuntimeError("sentinel-detail")]), Script()]
    response = post(port, "/v1/chat/completions", CHAT)
    assert response.status == 500
    assert response.error()["code"] == "internal_error"
    assert b"sentinel" not in response.body
    assert b"RuntimeError" not in response.body
    assert "internal_error" in caplog.text
    assert post(port, "/v1/chat/completions", CHAT).status == 200


def test_characters_cut_by_tokens_come_whole(port: int, backend: ScriptedBackend) -> None:
    """Each character as soon as it is complete; an unfinished one at the end becomes U+FFFD."""
    backend.scripts[:] = [Script([b"\xf0\x9f\x98", b"\x80", "😁".encode(), b"\xe4\xbd"])]
    _, events = stream(port, CHAT)
    deltas = [event["choices"][0]["delta"].get("content") for event in events.objects]
    assert deltas == ["", "😀", "😁", "\ufffd", None]


def test_line_ends_of_unicode_are_escaped(port: int, backend: ScriptedBackend) -> None:
    """A client that splits lines by Unicode's rules still finds whole JSON objects."""
    text = "a\u2028b\u2029c\u0085d\r\ne"
    backend.scripts[:] = [Script([text.encode()])]
    response, events = stream(port, CHAT)
    assert text_of(events) == text
    lines = response.body.decode().splitlines()
    assert lines == response.body.decode().split("\n")[:-1]
    whole = post(port, "/v1/chat/completions", CHAT)
    assert len(whole.body.decode().splitlines()) == 1
    assert whole.json()["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize(
    ("stop", "pieces", "text"),
    [
        ("DEFGHIJ", [b"ABC", b"DEF", b"G", b"HI", b"J", b"K"], "ABC"),
        ("DEFGHIJ", [b"ABC", b"DEF", b"G"], "ABCDEFG"),
        (["zz", "\n\n"], [b"one\n", b"\ntwo"], "one"),
        ("x", [b"x"], ""),
        ("é", [b"caf\xc3", b"\xa9!"], "caf"),
    ],
)
def test_stop_strings_cut_the_answer(
    port: int, backend: ScriptedBackend, stop: Any, pieces: list[bytes], text: str
) -> None:
    """Nothing of a stop string is ever sent, and nothing after it; the generation ends there."""
    backend.scripts[:] = [Script(pieces)]
    whole = post(port, "/v1/chat/completions", CHAT | {"stop": stop}).json()["choices"][0]
    assert whole["message"]["content"] == text
    assert whole["finish_reason"] == "stop"
    backend.scripts[:] = [Script(pieces)]
    _, events = stream(port, CHAT | {"stop": stop})
    assert text_of(events) == text
    assert events.objects[-1]["choices"][0]["finish_reason"] == "stop"
    assert backend.played[-1].steps <= len(pieces)


@pytest.mark.parametrize(
    ("reasoning", "pieces", "thought", "text"),
    [
        ("inside", [b"why", b"</th", b"ink>\n\n", b"because"], "why", "because"),
        ("outside", [b"<thi", b"nk>\nwhy\n", b"</think>\n\nbecause"], "why", "because"),
        ("outside", [b"just <think> of it"], "", "just <think> of it"),
        ("off", [b"<think>why</think>"], "", "<think>why</think>"),
        ("inside", [b"never", b" ending"], "never ending", ""),
    ],
)
def test_reasoning_is_kept_apart(
    port: int, backend: ScriptedBackend, reasoning: Reasoning, pieces: list[bytes], thought: str, text: str
) -> None:
    """In its own field, whole and streamed; what never closes is reasoning alone."""
    backend.scripts[:] = [Script(pieces)]
    backend.reasoning = reasoning
    answer = post(port, "/v1/chat/completions", CHAT).json()
    message = answer["choices"][0]["message"]
    assert message["content"] == text
    assert message.get("reasoning_content", "") == thought
    assert bool(answer["usage"]["completion_tokens_details"]["reasoning_tokens"]) == bool(thought)
    _, events = stream(port, CHAT)
    assert text_of(events) == text
    assert text_of(events, "reasoning_content") == thought


def test_the_output_limit_ends_an_answer_as_length(backend: ScriptedBackend) -> None:
    """The text is bounded in bytes, and says that it was cut."""
    backend = ScriptedBackend([Script([b"0123456789"], endless=True)])
    with running(backend, output_bytes=1024) as server:
        choice = post(server.port, "/v1/chat/completions", CHAT | {"max_tokens": 1000}).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == "0123456789" * 102
    assert backend.played[0].steps == 103


PIECES = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=6),
        st.sampled_from([b"<think>", b"</think>", b"\n", b"stop", b"st", b"op", "日本".encode()]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=PIECES, reasoning=st.sampled_from(["off", "outside", "inside"]))
def test_streamed_and_whole_answers_are_the_same_text(
    port: int, backend: ScriptedBackend, pieces: list[bytes], reasoning: Reasoning
) -> None:
    """For any cut of any bytes into tokens."""
    backend.scripts[:] = [Script(pieces)]
    backend.reasoning = reasoning
    request = CHAT | {"stop": ["stop", "\n\n\n"]}
    choice = post(port, "/v1/chat/completions", request).json()["choices"][0]
    _, events = stream(port, request)
    assert text_of(events) == choice["message"]["content"]
    assert text_of(events, "reasoning_content") == choice["message"].get("reasoning_content", "")
    assert events.objects[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]


def test_the_first_byte_and_heartbeats_do_not_wait_for_the_engine() -> None:
    """Headers and a comment at once, then comments by the clock, also while output is held back."""
    backend = ScriptedBackend([Script([b"st", b"x"], prefill_seconds=0.9, token_seconds=0.6)])
    with running(backend, heartbeat_seconds=0.2) as server, Connection(server.port) as connection:
        begin = time.monotonic()
        connection.post("/v1/chat/completions", CHAT | {"stream": True, "stop": "stop"})
        assert connection.read_head().status == 200
        times, body = [], b""
        for chunk in connection.chunks():
            times.append(time.monotonic() - begin)
            body += chunk
    assert times[0] < 0.3
    assert max(later - earlier for earlier, later in pairwise(times)) < 0.5
    events = parse_events(body)
    assert text_of(events) == "stx"
    assert "prefill 3/7" in events.comments
    assert "decode" in events.comments
    assert len(events.comments) >= 7


def test_heartbeats_come_while_python_code_keeps_the_lock() -> None:
    """An engine that computes in pure Python gives up the lock often enough."""

    class Busy(ScriptedBackend):
        """Computes instead of sleeping before it plays."""

        def generate(self, *args: Any, **kwargs: Any) -> Any:
            """Keep the interpreter busy first."""
            self._busy(1.0)
            return super().generate(*args, **kwargs)

    with running(Busy(), heartbeat_seconds=0.1) as server:
        _, events = stream(server.port, CHAT)
    assert len(events.comments) >= 6
    assert text_of(events) == "Hello world"


def test_streams_leave_no_tasks_behind(port: int, shared: tuple[ScriptedBackend, Running]) -> None:
    """After many short streams, as many tasks as before."""

    async def count() -> int:
        return len(asyncio.all_tasks())

    def tasks() -> int:
        loop = shared[1].service._loop
        assert loop is not None
        return asyncio.run_coroutine_threadsafe(count(), loop).result(5)

    stream(port, CHAT)
    time.sleep(0.1)
    before = tasks()
    for _ in range(100):
        stream(port, CHAT)
    time.sleep(0.1)
    assert tasks() <= before
