"""One request runs, a bounded number waits in order, the rest is sent away with a time to come again."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from engine.errors import PoisonedError
from server.exit_codes import ExitCode
from tests.server.raw_http import Connection, Response, call, post, wait_until
from tests.server.running import running
from tests.server.scripted import Script, ScriptedBackend


def chat(text: str) -> dict[str, Any]:
    """A request whose prompt can be told apart."""
    return {"messages": [{"role": "user", "content": text}]}


def test_a_full_queue_answers_429() -> None:
    """With both headers that tell when to come again; an earlier request is not disturbed."""
    backend = ScriptedBackend([Script([b"a"] * 1000, token_seconds=0.005), Script()])
    with running(backend, queue=1) as server, Connection(server.port) as first:
        first.post("/v1/chat/completions", chat("1") | {"stream": True})
        wait_until(lambda: backend.played)
        with Connection(server.port) as second:
            second.post("/v1/chat/completions", chat("2"))
            wait_until(lambda: server.service.engine.places == 2)
            third = post(server.port, "/v1/chat/completions", chat("3"))
            assert third.status == 429
            assert third.error()["type"] == "rate_limit_error"
            assert third.error()["code"] == "server_busy"
            seconds = int(third.header("retry-after") or 0)
            assert 1 <= seconds <= 60
            assert third.header("retry-after-ms") == str(seconds * 1000)
            assert call(server.port, "GET", "/readyz").status == 200
            first.close()
            assert second.read_response().json()["choices"][0]["message"]["content"] == "Hello world"


def test_a_queue_of_zero_still_runs_one() -> None:
    """One request at a time, and no waiting."""
    backend = ScriptedBackend([Script(prefill_seconds=60), Script()])
    with running(backend, queue=0) as server:
        with Connection(server.port) as first:
            first.post("/v1/completions", {"prompt": "1"})
            wait_until(lambda: backend.played)
            assert post(server.port, "/v1/completions", {"prompt": "2"}).status == 429
        wait_until(lambda: server.service.engine.places == 0)
        assert post(server.port, "/v1/completions", {"prompt": "3"}).status == 200


def test_requests_run_in_the_order_of_their_coming() -> None:
    """First come, first served; a request has come once its prompt is tokenised."""
    backend = ScriptedBackend([Script(prefill_seconds=1.0), Script()])
    with running(backend) as server:
        connections = []
        for number in range(6):
            connections.append(Connection(server.port))
            connections[-1].post("/v1/completions", {"prompt": str(number)})
            wait_until(lambda: backend.played)
            wait_until(lambda: len(server.service.engine._waiting) == len(connections) - 1)
        for connection in connections:
            assert connection.read_response().status == 200
            connection.close()
    assert [bytes(played.prompt) for played in backend.played] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_crowd_is_served_or_sent_away() -> None:
    """Many requests at once: the capacity is served, the others get 429, health stays quick."""
    backend = ScriptedBackend([Script(prefill_seconds=0.3)])
    answers: list[Response] = []

    def ask(port: int) -> None:
        answers.append(post(port, "/v1/completions", {"prompt": "x"}))

    with running(backend, queue=3) as server:
        threads = [threading.Thread(target=ask, args=(server.port,)) for _ in range(60)]
        for thread in threads:
            thread.start()
        begin = time.monotonic()
        assert call(server.port, "GET", "/readyz").status == 200
        assert time.monotonic() - begin < 1.0
        for thread in threads:
            thread.join(20)
        assert server.service.engine.places == 0
    statuses = sorted(answer.status for answer in answers)
    assert len(statuses) == 60
    assert set(statuses) == {200, 429}
    assert 4 <= statuses.count(200) <= 8
    assert statuses.count(200) == len(backend.played)


def test_a_refused_request_gives_its_place_back() -> None:
    """Bad requests of all kinds, more than there are places."""
    with running(ScriptedBackend(context=10), queue=0) as server:
        for body in (
            b"{",
            b"[]",
            b'{"prompt": 1}',
            b'{"prompt": ""}',
            json.dumps({"prompt": "x" * 99}).encode(),
        ):
            for _ in range(3):
                assert call(server.port, "POST", "/v1/completions", body).status == 400
        assert server.service.engine.places == 0
        assert post(server.port, "/v1/completions", {"prompt": "x"}).status == 200


def test_alternating_conversations_do_not_mix() -> None:
    """Each answer belongs to its own request."""

    class Echo(ScriptedBackend):
        """Answers with its prompt."""

        def generate(self, prompt: Any, *args: Any, **kwargs: Any) -> Any:
            """Play the prompt, byte by byte."""
            self.scripts[:] = [Script([bytes([token]) for token in prompt])]
            return super().generate(prompt, *args, **kwargs)

    with running(Echo()) as server:
        for number in range(30):
            for who in ("anna", "bert"):
                prompt = f"{who} {number}"
                answer = post(server.port, "/v1/completions", {"prompt": prompt, "stop": ["never"]})
                assert answer.json()["choices"][0]["text"] == prompt


def test_a_poisoned_engine_is_reset() -> None:
    """The failed request gets 500, the next one a right answer."""
    backend = ScriptedBackend([Script([PoisonedError("the state could not be restored")]), Script()])
    with running(backend) as server:
        assert post(server.port, "/v1/completions", {"prompt": "1"}).status == 500
        assert post(server.port, "/v1/completions", {"prompt": "2"}).status == 200
        assert backend.resets == 1


def test_an_engine_that_cannot_be_reset_ends_the_server() -> None:
    """With the exit code of an engine fault; a request that waited is told so."""
    script = Script([PoisonedError("the state could not be restored")], prefill_seconds=0.4)
    backend = ScriptedBackend([script], fail_reset=True)
    with running(backend) as server, Connection(server.port) as first, Connection(server.port) as second:
        first.post("/v1/completions", {"prompt": "1"})
        wait_until(lambda: backend.played)
        second.post("/v1/completions", {"prompt": "2"})
        assert first.read_response().status == 500
        response = second.read_response()
        assert response.status == 503
        assert response.error()["code"] == "failed"
        assert server.wait() is ExitCode.ENGINE_FAULT
