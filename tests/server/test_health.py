"""Alive, ready, loading, draining, failed; and that health stays quick whatever the engine does."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import pytest

from engine.artifact import Progress
from engine.errors import HashMismatchError, UnsupportedArchitectureError
from server.backend import Backend
from server.exit_codes import ExitCode
from tests.server.raw_http import Connection, call, format_request, post, wait_until
from tests.server.running import running
from tests.server.scripted import Script, ScriptedBackend


def test_while_loading_the_server_is_alive_and_not_ready() -> None:
    """Health answers at once; everything else with the key gets 503; nothing is announced."""
    go = threading.Event()

    def load(_progress: Progress) -> Backend:
        assert go.wait(10)
        return ScriptedBackend()

    with running(ScriptedBackend(), load=load, wait_ready=False) as server:
        wait_until(lambda: server.service.engine.alive)
        assert call(server.port, "GET", "/livez", key=None).json() == {"status": "alive"}
        for path in ("/readyz", "/health"):
            response = call(server.port, "GET", path, key=None)
            assert (response.status, response.json()) == (503, {"status": "loading"})
        for path in ("/v1/models", "/v1/models/x", "/v1/capabilities"):
            response = call(server.port, "GET", path)
            assert response.status == 503
            assert response.error()["code"] == "loading"
            assert response.header("retry-after") is not None
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/tokenize", "/v1/detokenize"):
            assert post(server.port, path, {}).status == 503
        assert call(server.port, "GET", "/v1/models", key=None).status == 401
        assert server.records == []
        go.set()
        assert server.ready.wait(5)
        assert call(server.port, "GET", "/readyz", key=None).json() == {"status": "ready"}


def test_the_ready_record_says_what_is_served() -> None:
    """One record, with the real port and the identity of the model."""
    with running(ScriptedBackend()) as server:
        assert call(server.port, "HEAD", "/livez", key=None).body == b""
        (record,) = server.records
    assert record["type"] == "ready"
    assert record["port"] == server.port
    assert record["base_url"] == f"http://127.0.0.1:{server.port}/v1"
    assert record["model_sha256"] == "ab" * 32
    assert record["context"] == 4096


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HashMismatchError("not the pinned file"), ExitCode.IDENTITY),
        (UnsupportedArchitectureError("no such graph"), ExitCode.MODEL),
        (ZeroDivisionError("a mistake"), ExitCode.UNEXPECTED),
    ],
)
def test_a_model_that_cannot_be_loaded_ends_the_server(error: Exception, code: ExitCode) -> None:
    """With the code for the reason, and without a ready record."""

    def load(_progress: Progress) -> Backend:
        raise error

    with running(ScriptedBackend(), load=load, wait_ready=False) as server:
        assert server.wait() is code
        assert server.records == []


def test_models_and_capabilities(port: int) -> None:
    """The one model, by list and by id; the engine's record with identity and limits."""
    listed = call(port, "GET", "/v1/models").json()
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert model["id"] == "Scripted"
    assert model["object"] == "model"
    assert isinstance(model["created"], int)
    assert isinstance(model["owned_by"], str)
    assert call(port, "GET", "/v1/models/Scripted").json() == model
    assert call(port, "GET", "/v1/models/%53cripted").json() == model
    capabilities = call(port, "GET", "/v1/capabilities").json()
    assert capabilities["schema_version"] == 1
    assert capabilities["served"]["sha256"] == "ab" * 32
    assert capabilities["served"]["context"] == 4096
    assert capabilities["limits"]["body_bytes"] == 1 << 20


def latencies(port: int, seconds: float) -> list[float]:
    """Milliseconds of requests for /livez, one after the other on one connection."""
    found = []
    with Connection(port) as connection:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            connection.send(format_request(port, "GET", "/livez", key=None))
            assert connection.read_response().status == 200
            found.append((time.monotonic() - begin) * 1000)
            time.sleep(0.005)
    return found


def test_an_idle_server_answers_at_once(port: int) -> None:
    """Without the 40 ms that small writes wait when the socket is not told otherwise."""
    assert statistics.median(latencies(port, 0.5)) < 20


def test_health_is_quick_while_python_code_tokenises_and_generates() -> None:
    """Both keep Python's lock in slices; half of the answers come within 50 ms, none takes a second."""

    class Busy(ScriptedBackend):
        """Computes without end, like a generation in pure Python."""

        def generate(self, *args: Any, **kwargs: Any) -> Any:
            """Be busy for as long as the test measures."""
            self._busy(2.5)
            return super().generate(*args, **kwargs)

    backend = Busy([Script()], context=2 << 20, encode_seconds=1.5)
    with running(backend) as server, Connection(server.port) as first, Connection(server.port) as second:
        first.post("/v1/completions", {"prompt": "x"})
        second.post("/v1/completions", {"prompt": "x" * 1_000_000})
        found = latencies(server.port, 1.5)
        assert first.read_response().status == 200
    assert statistics.median(found) < 50
    assert max(found) < 1000
