"""The way down: new work is refused, what waits is told, the running answer ends honestly and in time."""

from __future__ import annotations

import threading
import time
from typing import Any

from engine.artifact import Progress
from server.backend import Backend
from server.exit_codes import ExitCode
from tests.server.raw_http import Connection, call, parse_events, post, wait_until
from tests.server.running import running
from tests.server.scripted import Script, ScriptedBackend

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000}
SLOW = Script([b"a"] * 20, token_seconds=0.04)
ENDLESS = Script([b"x"], token_seconds=0.01, endless=True)


def test_an_idle_server_ends_at_once_and_clean() -> None:
    """Open idle connections do not keep it."""
    with running(ScriptedBackend()) as server, Connection(server.port) as idle:
        idle.request("GET", "/livez")
        idle.read_response()
        begin = time.monotonic()
        assert server.stop() is ExitCode.CLEAN
        assert time.monotonic() - begin < 2
        assert idle.is_closed()


def test_a_running_answer_may_finish() -> None:
    """Within the drain time; meanwhile new work is refused and readiness is gone; the end is clean."""
    with (
        running(backend := ScriptedBackend([SLOW]), drain_seconds=10) as server,
        Connection(server.port) as connection,
    ):
        connection.post("/v1/chat/completions", CHAT | {"stream": True})
        connection.read_head()
        wait_until(lambda: backend.played)
        server.service.request_stop()
        wait_until(lambda: server.service.engine.status == "draining")
        ready = call(server.port, "GET", "/readyz", key=None)
        assert (ready.status, ready.json()) == (503, {"status": "draining"})
        assert call(server.port, "GET", "/livez", key=None).status == 200
        refused = post(server.port, "/v1/chat/completions", CHAT)
        assert refused.status == 503
        assert refused.error()["code"] == "draining"
        assert refused.header("x-should-retry") == "false"
        events = parse_events(b"".join(connection.chunks()))
        assert events.data[-1] == "[DONE]"
        assert server.wait() is ExitCode.CLEAN


def test_an_answer_that_takes_too_long_is_cut_off_honestly() -> None:
    """An error event, no end marker, and an exit code that tells of it."""
    with (
        running(backend := ScriptedBackend([ENDLESS]), drain_seconds=0.3) as server,
        Connection(server.port) as connection,
    ):
        connection.post("/v1/chat/completions", CHAT | {"stream": True})
        begin = time.monotonic()
        wait_until(lambda: backend.played)
        server.service.request_stop()
        response = connection.read_response()
        assert server.wait() is ExitCode.DEADLINE
        assert time.monotonic() - begin < 3
    assert not response.complete
    events = parse_events(response.body)
    assert "[DONE]" not in events.data
    assert events.objects[-1]["error"]["code"] == "draining"


def test_a_second_request_to_stop_does_not_wait() -> None:
    """The running answer is cut off at once."""
    with (
        running(backend := ScriptedBackend([ENDLESS]), drain_seconds=60) as server,
        Connection(server.port) as connection,
    ):
        connection.post("/v1/chat/completions", CHAT)
        wait_until(lambda: backend.played)
        server.service.request_stop()
        time.sleep(0.2)
        server.service.request_stop()
        assert connection.read_response().status == 503
        assert server.wait(5) is ExitCode.DEADLINE


def test_requests_that_wait_are_told() -> None:
    """503 for a whole answer, an error event in a stream, while the running one goes on."""
    with (
        running(backend := ScriptedBackend([SLOW]), drain_seconds=10) as server,
        Connection(server.port) as first,
        Connection(server.port) as second,
        Connection(server.port) as third,
    ):
        for number, connection in enumerate((first, second, third), 1):
            connection.post("/v1/chat/completions", CHAT | {"stream": connection is third})
            wait_until(lambda expected=number: server.service.engine.places == expected)
        wait_until(lambda: backend.played)
        server.service.request_stop()
        assert second.read_response().error()["code"] == "draining"
        streamed = third.read_response()
        assert not streamed.complete
        assert b'"code":"draining"' in streamed.body
        assert first.read_response().status == 200
        assert server.wait() is ExitCode.CLEAN


def test_loading_can_be_interrupted() -> None:
    """A stop while the file is hashed ends the server clean."""
    started = threading.Event()

    def load(progress: Progress) -> Backend:
        started.set()
        for step in range(1000):
            progress(step, 1000)
            time.sleep(0.02)
        return ScriptedBackend()

    with running(ScriptedBackend(), load=load, wait_ready=False) as server:
        assert started.wait(5)
        begin = time.monotonic()
        assert server.stop() is ExitCode.CLEAN
        assert time.monotonic() - begin < 2
        assert server.records == []
        wait_until(lambda: not server.service.busy)


def test_an_engine_that_does_not_listen_cannot_keep_the_server() -> None:
    """Its client is told all the same, the end comes within a bound, and the code tells of the cut."""
    backend = ScriptedBackend([Script(prefill_seconds=6, deaf=True)])
    with running(backend, drain_seconds=0.1) as server, Connection(server.port) as connection:
        connection.post("/v1/chat/completions", CHAT | {"stream": True})
        wait_until(lambda: backend.played)
        begin = time.monotonic()
        server.service.request_stop()
        assert b'"code":"draining"' in connection.read_response().body
        assert time.monotonic() - begin < 2
        assert server.wait() is ExitCode.DEADLINE
        assert time.monotonic() - begin < 5.5
        assert server.service.busy


def test_a_server_after_another_in_one_process_is_not_touched() -> None:
    """Nothing process-wide is left behind that would end later streams."""
    for _ in range(2):
        with running(ScriptedBackend()) as server:
            response = post(server.port, "/v1/chat/completions", CHAT | {"stream": True})
            assert response.complete
            assert server.stop() is ExitCode.CLEAN
