"""The bounds of the HTTP layer: time to receive, sizes, and the number of connections."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.server.raw_http import KEY, Connection, call, format_request, post, wait_until
from tests.server.running import Running, running
from tests.server.scripted import ScriptedBackend

MIB = 1 << 20


@pytest.fixture(scope="module")
def quick() -> Iterator[Running]:
    """A server with short deadlines and few connections."""
    with running(
        ScriptedBackend(context=1 << 21),
        header_seconds=0.6,
        body_seconds=0.8,
        idle_seconds=1,
        connections=8,
    ) as server:
        yield server
        assert call(server.port, "GET", "/readyz").status == 200


def trickle(connection: Connection, data: bytes, pause: float = 0.05) -> float:
    """Send byte by byte until the server closes; the seconds it took."""
    begin = time.monotonic()
    connection.socket.settimeout(pause)
    for byte in data:
        try:
            connection.send(bytes([byte]))
            if not connection.socket.recv(1000):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        pytest.fail("the server listened to the end")
    return time.monotonic() - begin


def test_a_header_must_come_in_time(quick: Running) -> None:
    """One byte after the other does not win time."""
    with Connection(quick.port) as connection:
        assert 0.3 < trickle(connection, format_request(quick.port, "GET", "/livez") * 2) < 2.0


def test_a_body_must_come_in_time(quick: Running) -> None:
    """Neither does a slow body, with the key or without."""
    for key in (KEY, None):
        with Connection(quick.port) as connection:
            connection.request("POST", "/v1/completions", b"", key=key, headers=(("Content-Length", "500"),))
            assert trickle_after_answer(connection) < 2.0


def trickle_after_answer(connection: Connection) -> float:
    """As `trickle`, for connections that may have an answer waiting."""
    begin = time.monotonic()
    connection.socket.settimeout(0.05)
    while time.monotonic() - begin < 5:
        try:
            connection.send(b" ")
            if not connection.socket.recv(10_000):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begin


def test_a_connection_that_says_nothing_is_closed(quick: Running) -> None:
    """At the deadline for the header."""
    with Connection(quick.port) as connection:
        begin = time.monotonic()
        assert connection.is_closed()
        assert 0.4 < time.monotonic() - begin < 2.0


def test_a_connection_may_rest_between_requests(quick: Running) -> None:
    """For the idle time, then it is closed; a slow second header has its own deadline."""
    with Connection(quick.port) as connection:
        connection.request("GET", "/livez")
        assert connection.read_response().status == 200
        time.sleep(0.7)
        connection.request("GET", "/livez")
        assert connection.read_response().status == 200
        begin = time.monotonic()
        assert connection.is_closed()
        assert 0.7 < time.monotonic() - begin < 2.5
    with Connection(quick.port) as connection:
        connection.request("GET", "/livez")
        assert connection.read_response().status == 200
        assert trickle(connection, format_request(quick.port, "GET", "/livez") * 2) < 2.0


def test_slow_clients_do_not_hold_up_others(quick: Running) -> None:
    """While some trickle, a good client is served."""
    slow = [Connection(quick.port) for _ in range(5)]
    for connection in slow:
        connection.send(b"POST /v1/completions HTTP/1.1\r\n")
    begin = time.monotonic()
    assert post(quick.port, "/v1/completions", {"prompt": "x"}).status == 200
    assert time.monotonic() - begin < 0.5
    for connection in slow:
        assert connection.is_closed()
        connection.close()


def test_the_number_of_connections_is_bounded(quick: Running) -> None:
    """Beyond the cap a newcomer gets 503; once the others have been idle for a second it gets their place."""
    wait_until(lambda: len(quick.service._web.server_state.connections) == 0)
    hoard = [Connection(quick.port) for _ in range(8)]
    for connection in hoard:
        connection.request("GET", "/livez")
        assert connection.read_response().status == 200
    with Connection(quick.port) as refused:
        response = refused.read_response()
        assert response.status == 503
        assert response.error()["code"] == "too_many_connections"
        assert refused.is_closed()
    for connection in hoard:
        connection.close()


def test_idle_connections_make_room() -> None:
    """The longest idle one is closed for a newcomer."""
    with running(ScriptedBackend(), connections=8) as server:
        hoard = [Connection(server.port) for _ in range(8)]
        wait_until(lambda: len(server.service._web.server_state.connections) == 8)
        hoard[0].request("GET", "/livez")
        hoard[0].read_response()
        time.sleep(1.2)
        assert call(server.port, "GET", "/livez").status == 200
        assert hoard[1].is_closed()
        hoard[0].request("GET", "/livez")
        assert hoard[0].read_response().status == 200
        for connection in hoard:
            connection.close()


@pytest.mark.parametrize(
    "lines",
    [
        f"X: {'y' * 17_000}",
        "\r\n".join(f"X{number}: y" for number in range(5000)),
        "\r\n".join("X: y" for _ in range(101)),
        f"{'x' * 17_000}: y",
    ],
)
def test_large_headers_are_refused(port: int, lines: str) -> None:
    """Too long or too many: 431, and the connection is closed."""
    with Connection(port) as connection:
        connection.send(f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{lines}\r\n\r\n".encode())
        response = connection.read_response()
        assert response.status == 431
        assert response.error()["code"] == "headers_too_large"
        assert connection.is_closed()


@pytest.mark.parametrize("target", [b"/" + b"x" * 65_536, b"/livez?" + b"x" * 17_000])
def test_a_large_request_line_is_refused(port: int, target: bytes) -> None:
    """Path and query count too."""
    with Connection(port) as connection:
        connection.send(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (target, port))
        assert connection.read_response().status == 431
        assert connection.is_closed()


def test_a_body_of_the_limit_is_read(quick: Running) -> None:
    """One MiB exactly, by length and by chunks."""
    body = json.dumps({"text": ""}).encode()
    body = body[:-2] + b"x" * (MIB - len(body)) + b'"}'
    assert len(body) == MIB
    assert call(quick.port, "POST", "/v1/tokenize", body).json()["token_count"] == MIB - len('{"text": ""}')
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    headers = (("Transfer-Encoding", "chunked"),)
    assert call(quick.port, "POST", "/v1/tokenize", chunked, headers=headers).status == 200


def test_a_larger_body_is_refused(port: int) -> None:
    """By length at once, by chunks as soon as the limit is passed."""
    response = call(port, "POST", "/v1/tokenize", b"", headers=(("Content-Length", str(MIB + 1)),))
    assert response.status == 413
    assert response.error()["code"] == "body_too_large"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    with Connection(port) as connection:
        connection.request("POST", "/v1/tokenize", b"", headers=(("Transfer-Encoding", "chunked"),))
        for _ in range(17):
            connection.send(chunk)
        assert connection.read_response().status == 413


def test_a_refused_body_is_not_asked_for(port: int) -> None:
    """A client that waits for 100 Continue gets its refusal instead."""
    expect = ("Expect", "100-continue")
    for key, length, status in ((KEY, MIB + 1, 413), (None, 10, 401)):
        with Connection(port) as connection:
            connection.request(
                "POST", "/v1/tokenize", b"", key=key, headers=(expect, ("Content-Length", str(length)))
            )
            assert connection.read_head().status == status
    with Connection(port) as connection:
        body = b'{"text": "x"}'
        connection.request("POST", "/v1/tokenize", b"", headers=(expect, ("Content-Length", str(len(body)))))
        assert connection.read_head().status == 100
        connection.send(body)
        assert connection.read_response().status == 200


def test_a_client_that_leaves_in_the_middle_of_a_body_does_no_harm(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is logged as a mistake, and no place is taken."""
    with Connection(port) as connection:
        connection.request("POST", "/v1/completions", b"{", headers=(("Content-Length", "100"),))
    time.sleep(0.1)
    assert "error" not in caplog.text.lower()
    assert post(port, "/v1/completions", {"prompt": "x"}).status == 200


def test_a_connection_serves_again_after_a_refused_body(port: int) -> None:
    """The rest of the body is read away."""
    with Connection(port) as connection:
        connection.request("POST", "/v1/tokenize", b"x" * 100_000, key=None)
        assert connection.read_response().status == 401
        connection.request("GET", "/v1/models")
        assert connection.read_response().status == 200
