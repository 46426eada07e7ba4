"""A client that goes away in any phase: the place is free, the engine stops, the next answer is right."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.raw_http import Connection, post, wait_until
from tests.server.running import Running, running
from tests.server.scripted import Script, ScriptedBackend

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
ENDLESS = Script([b"x"], token_seconds=0.01, endless=True)


def free(server: Running) -> Callable[[], bool]:
    """Whether no place is taken."""
    return lambda: server.service.engine.places == 0


def check_next(server: Running, backend: ScriptedBackend) -> None:
    """The next request gets the right answer."""
    backend.scripts[:] = [Script()]
    answer = post(server.port, "/v1/chat/completions", CHAT)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("script", [Script(prefill_seconds=60), ENDLESS], ids=["prefill", "decode"])
def test_leaving_while_running_cancels(script: Script, streamed: bool) -> None:
    """In prefill and in decode, streamed and not: the engine stops within a moment."""
    backend = ScriptedBackend([script])
    with running(backend) as server:
        with Connection(server.port) as connection:
            connection.post("/v1/chat/completions", CHAT | {"stream": streamed, "max_tokens": 4000})
            wait_until(lambda: backend.played)
            time.sleep(0.1)
        assert wait_until(free(server)) < 1.0
        assert backend.played[0].ended == "CancelledError"
        steps = backend.played[0].steps
        time.sleep(0.1)
        assert backend.played[0].steps == steps
        check_next(server, backend)


@pytest.mark.parametrize("streamed", [True, False])
def test_leaving_the_queue_frees_the_place_and_runs_nothing(streamed: bool) -> None:
    """The waiting request goes, the running one stays."""
    backend = ScriptedBackend([ENDLESS])
    with running(backend) as server, Connection(server.port) as first:
        first.post("/v1/chat/completions", CHAT | {"stream": True, "max_tokens": 4000})
        wait_until(lambda: backend.played)
        with Connection(server.port) as second:
            second.post("/v1/chat/completions", CHAT | {"stream": streamed})
            wait_until(lambda: server.service.engine.places == 2)
        assert wait_until(lambda: server.service.engine.places == 1) < 1.0
        assert backend.played[0].ended == "running"
        first.close()
        assert wait_until(free(server)) < 1.0
        assert len(backend.played) == 1
        check_next(server, backend)


def test_a_client_that_ends_its_sending_side_counts_as_gone() -> None:
    """A half-closed connection is a closed one."""
    backend = ScriptedBackend([ENDLESS])
    with running(backend) as server, Connection(server.port) as connection:
        connection.post("/v1/chat/completions", CHAT | {"stream": True, "max_tokens": 4000})
        wait_until(lambda: backend.played)
        connection.socket.shutdown(socket.SHUT_WR)
        assert wait_until(free(server)) < 1.0
        check_next(server, backend)


def test_a_client_with_pipelined_bytes_is_noticed_by_the_heartbeat() -> None:
    """Bytes that wait unread hide the end of the connection; the next write finds it."""
    backend = ScriptedBackend([Script(prefill_seconds=60)])
    with running(backend, heartbeat_seconds=0.2) as server:
        with Connection(server.port) as connection:
            connection.post("/v1/chat/completions", CHAT | {"stream": True})
            wait_until(lambda: backend.played)
            connection.send(b"GET /livez HTTP/1.1\r\n")
            time.sleep(0.1)
        assert wait_until(free(server)) < 2.0
        check_next(server, backend)


def test_a_reader_that_stops_reading_is_dropped() -> None:
    """At the stall deadline; the place is free and memory was bounded by the answer."""
    backend = ScriptedBackend([Script([b"x" * 60_000], token_seconds=0.001, endless=True)])
    with (
        running(backend, send_stall_seconds=0.5, output_bytes=64 << 20) as server,
        Connection(server.port, receive_buffer=4096) as connection,
    ):
        connection.post("/v1/chat/completions", CHAT | {"stream": True, "max_tokens": 4000})
        wait_until(lambda: backend.played)
        wait_until(free(server), 10)
        wait_until(lambda: not server.service._web.server_state.connections)
        check_next(server, backend)


def test_a_whole_answer_that_nobody_reads_is_dropped() -> None:
    """An answer in one piece does not keep its connection for ever."""
    backend = ScriptedBackend([Script([b"x" * 1_000_000] * 12)])
    with (
        running(backend, send_stall_seconds=0.5, output_bytes=64 << 20) as server,
        Connection(server.port, receive_buffer=4096) as connection,
    ):
        connection.post("/v1/chat/completions", CHAT)
        wait_until(lambda: backend.played and backend.played[0].ended != "running", 20)
        wait_until(lambda: not server.service._web.server_state.connections, 20)
        check_next(server, backend)


def test_the_deadline_ends_a_generation() -> None:
    """504 for a whole answer, an error event in a stream; neither is to be repeated."""
    backend = ScriptedBackend([ENDLESS])
    with running(backend, generation_seconds=0.3) as server:
        request = CHAT | {"max_tokens": 4000}
        response = post(server.port, "/v1/chat/completions", request)
        assert response.status == 504
        assert response.header("x-should-retry") == "false"
        assert response.error()["code"] == "deadline_exceeded"
        streamed = post(server.port, "/v1/chat/completions", request | {"stream": True})
        assert not streamed.complete
        assert b'"code":"deadline_exceeded"' in streamed.body
        assert b"[DONE]" not in streamed.body
        check_next(server, backend)


def test_leaving_at_any_moment_leaves_nothing_behind() -> None:
    """Many clients that go away at different moments; afterwards all is free and answers are right."""
    backend = ScriptedBackend([Script([b"a", b"b", b"c"], prefill_seconds=0.005, token_seconds=0.005)])
    with running(backend) as server:
        for number in range(60):
            with Connection(server.port) as connection:
                connection.post("/v1/chat/completions", CHAT | {"stream": number % 2 == 0})
                time.sleep(number * 0.0005)
        wait_until(free(server))
        assert server.service.engine.idle
        check_next(server, backend)
