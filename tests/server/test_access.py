"""The gate and the HTTP layer over real sockets: what a stranger, a web page or a smuggler gets."""

from __future__ import annotations

import json

import pytest

from tests.server.raw_http import KEY, Connection, call, format_request, post
from tests.server.running import ORIGIN
from tests.server.scripted import ScriptedBackend

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
PUBLIC = ("/livez", "/readyz", "/health")
PROTECTED = (
    "/v1/capabilities",
    "/v1/models",
    "/v1/models/Scripted",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/tokenize",
    "/v1/detokenize",
    "/",
    "/v1",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/unknown",
)
TRICKS = (
    "//v1/models",
    "/v1/./models",
    "/v1/../livez",
    "/v1/%2e%2e/livez",
    "/v1%2fmodels",
    "/%6civez",
    "/livez/",
    "/livez;x",
    "/LIVEZ",
    "/livez%00",
    "/v1/models/%ff",
    "/%",
    "/%c0%af",
)
CHAT = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()


@pytest.mark.parametrize("method", METHODS)
def test_without_the_key_only_health_answers(port: int, method: str) -> None:
    """Every method on every route, unknown routes and odd spellings: 401, and the same body each time."""
    bodies = set()
    for path in (*PUBLIC, *PROTECTED, *TRICKS):
        response = call(port, method, path, key=None)
        if path in PUBLIC and method in ("GET", "HEAD"):
            assert response.status == 200, path
            continue
        assert response.status == 401, path
        assert response.header("www-authenticate") == "Bearer"
        bodies.add(response.body)
    assert len(bodies) == 1


def test_with_the_key_unknown_routes_are_404(port: int) -> None:
    """Odd spellings are not normalised into routes, and nothing redirects."""
    for path in ("/", "/v1", "/unknown", "/v1/chat", "/v1/models/", "/v1/models/other", *TRICKS):
        response = call(port, "GET", path)
        assert response.status == 404, path
        assert response.error()["code"] in ("not_found", "model_not_found")
        assert response.header("location") is None


def test_with_the_key_wrong_methods_are_405(port: int) -> None:
    """The answer names the methods that the route has."""
    response = call(port, "GET", "/v1/chat/completions")
    assert (response.status, response.header("allow")) == (405, "POST")
    assert response.error()["code"] == "method_not_allowed"
    response = call(port, "DELETE", "/v1/models")
    assert response.status == 405
    assert set(str(response.header("allow")).split(", ")) == {"GET", "HEAD"}
    assert call(port, "OPTIONS", "/v1/models").status == 405


@pytest.mark.parametrize(
    "path",
    [f"/v1/models?key={KEY}", f"/v1/models?access_token={KEY}", f"/v1/models#{KEY}", f"/{KEY}"],
)
def test_the_key_counts_in_its_header_alone(port: int, path: str) -> None:
    """A key in the target or in a cookie is no key."""
    assert call(port, "GET", path, key=None, headers=(("Cookie", f"key={KEY}"),)).status == 401


def test_two_authorization_headers_are_refused(port: int) -> None:
    """Good and bad, bad and good, good and good."""
    good, bad = ("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer wrong-wrong-wrong")
    for headers in ((good, bad), (bad, good), (good, good)):
        assert call(port, "GET", "/v1/models", key=None, headers=headers).status == 401


def test_hosts_that_name_another_server_are_refused(port: int) -> None:
    """On public and protected routes, with the key and without."""
    foreign = ("evil.example", f"evil.example:{port}", f"127.0.0.1:{port + 1}", f"LOCALHOST:{port}")
    malformed = ("127.0.0.1/livez?x=", f"user@127.0.0.1:{port}", f"127.0.0.1:{port}, evil")
    for path in ("/livez", "/v1/models"):
        for key in (KEY, None):
            for host in foreign:
                assert call(port, "GET", path, key=key, host=host).status == 403, host
            for host in malformed:
                assert call(port, "GET", path, key=key, host=host).status == 400, host
    assert call(port, "GET", "/v1/models", host=f"localhost:{port}").status == 200


@pytest.mark.parametrize(
    "head",
    [
        "GET /livez HTTP/1.1\r\n",
        "GET /livez HTTP/1.0\r\n",
        "GET /livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: 127.0.0.1:{port}\r\n",
        "GET /livez HTTP/1.1\r\nHost:\r\n",
        "GET http://evil.example/livez HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n",
        "CONNECT evil.example:443 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n",
    ],
)
def test_requests_without_one_host_and_a_path_are_bad(port: int, head: str) -> None:
    """Host missing, empty or repeated; targets that are no paths."""
    with Connection(port) as connection:
        connection.send(head.format(port=port).encode() + b"\r\n")
        response = connection.read_response()
    assert response.status == 400
    response.error()


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost:3000", "chrome-extension://abc", f"{ORIGIN}:443"],
)
def test_foreign_pages_are_refused_before_the_body(port: int, origin: str) -> None:
    """Without CORS headers, with the key and without, and without asking for the body."""
    headers = (("Origin", origin), ("Content-Length", "1000"), ("Expect", "100-continue"))
    for key in (KEY, None):
        response = call(port, "POST", "/v1/completions", b"", key=key, headers=headers)
        assert response.status == 403
        assert not any(name.startswith("access-control") for name, _ in response.headers)


def test_pages_of_a_listed_origin_may_read_answers(port: int) -> None:
    """The exact echo, varying by origin, without credentials."""
    response = call(port, "GET", "/v1/models", headers=(("Origin", ORIGIN), ("Sec-Fetch-Site", "cross-site")))
    assert response.status == 200
    assert response.header("access-control-allow-origin") == ORIGIN
    assert response.header("vary") == "Origin"
    assert response.header("access-control-allow-credentials") is None
    refused = call(port, "GET", "/v1/models", key=None, headers=(("Origin", ORIGIN),))
    assert refused.status == 401


def test_preflights_are_answered_by_origin(port: int) -> None:
    """A listed origin learns what it may send; others get 403."""
    asked = ("Access-Control-Request-Method", "POST")
    response = call(port, "OPTIONS", "/v1/chat/completions", key=None, headers=(("Origin", ORIGIN), asked))
    assert response.status == 204
    assert response.header("access-control-allow-headers") == "authorization, content-type"
    foreign = call(port, "OPTIONS", "/v1/chat/completions", headers=(("Origin", "https://evil"), asked))
    assert foreign.status == 403


def test_a_page_cannot_load_anything_without_origin(port: int) -> None:
    """What an image or script tag sends."""
    headers = (("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors"))
    assert call(port, "GET", "/livez", key=None, headers=headers).status == 403
    assert call(port, "GET", "/v1/models", headers=headers).status == 403


@pytest.mark.parametrize("key", [KEY, None])
def test_websockets_are_refused(port: int, key: str | None) -> None:
    """On any path, and the connection is closed."""
    upgrade = (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    )
    for path in ("/livez", "/v1/chat/completions"):
        with Connection(port) as connection:
            connection.request("GET", path, key=key, headers=upgrade)
            assert connection.read_response().error()["code"] == "no_websocket"
            assert connection.is_closed()


def test_every_answer_has_the_safe_headers_and_no_server_name(port: int) -> None:
    """Good, bad, streamed and refused by the HTTP layer itself."""
    with Connection(port) as connection:
        connection.send(b"nonsense\r\n\r\n")
        nonsense = connection.read_response()
    for response in (
        nonsense,
        call(port, "GET", "/livez", key=None),
        call(port, "GET", "/unknown"),
        call(port, "GET", "/v1/models", key=None),
        call(port, "GET", "/livez", host="evil"),
        call(port, "DELETE", "/v1/models"),
        post(port, "/v1/chat/completions", {"messages": []}),
        post(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        post(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
    ):
        assert response.header("cache-control") == "no-store"
        assert response.header("x-content-type-options") == "nosniff"
        assert response.header("server") is None
        assert response.header("content-type") in ("application/json", "text/event-stream; charset=utf-8")


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: -5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length: 99999999999999999999999",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Content-Length : 5",
        "X: a\0b",
    ],
)
def test_ambiguous_framing_is_refused(port: int, backend: ScriptedBackend, lines: str) -> None:
    """An error, the connection closed, and what follows is never taken for a request."""
    with Connection(port) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
        head += f"Content-Type: application/json\r\n{lines}\r\n\r\n"
        connection.send(head.encode("latin-1") + b"0\r\n\r\n" + SMUGGLED)
        answer = connection.read_to_end()
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ", b"HTTP/1.1 413 "))
    assert answer.count(b"content-type: ") == 1
    assert backend.played == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET /livez HTTP/1.1\nHost: 127.0.0.1:%d\n\n",
        b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nX: a\nY: b\r\n\r\n",
        b"GET /livez\x01 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
        b"GET /livez\xff HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
        b"GET  /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n",
    ],
)
def test_sloppy_headers_are_refused(port: int, data: bytes) -> None:
    """Bare line feeds, control characters, odd spaces."""
    with Connection(port) as connection:
        connection.send(data % port)
        response = connection.read_response()
        assert response.status == 400
        assert connection.is_closed()
    assert response.error()["code"] == "invalid_http"


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x05\x01\x00",
        b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00\r\n\r\n",
    ],
)
def test_other_protocols_are_refused(port: int, data: bytes) -> None:
    """HTTP/2, TLS and SOCKS on the plain port: an error or a wait for more, and never an answer."""
    with Connection(port, timeout=1.0) as connection:
        connection.send(data)
        try:
            answer = connection.read_to_end()
        except TimeoutError:
            answer = b""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


def test_a_header_may_come_in_any_pieces(port: int) -> None:
    """Line ends cut anywhere, and line feeds in the body, are not taken for bare ones."""
    body = json.dumps({"text": "a"}, indent=1).encode()
    data = format_request(port, "POST", "/v1/tokenize", body)
    for cut in range(data.index(b"\r\n\r\n"), data.index(b"\r\n\r\n") + 6):
        with Connection(port) as connection:
            connection.socket.setsockopt(6, 1, 1)  # TCP_NODELAY: the pieces stay apart
            for piece in (data[:20], data[20:cut], data[cut:]):
                connection.send(piece)
            assert connection.read_response().status == 200


def test_pipelined_requests_are_judged_one_by_one(port: int) -> None:
    """A request without a key after one with it gets 401."""
    with Connection(port) as connection:
        connection.send(
            format_request(port, "GET", "/v1/models") + format_request(port, "GET", "/v1/models", key=None)
        )
        assert connection.read_response().status == 200
        assert connection.read_response().status == 401


def test_forwarding_and_override_headers_change_nothing(port: int) -> None:
    """They are neither trusted nor refused."""
    headers = (
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Original-URL", "/livez"),
        ("X-Rewrite-URL", "/livez"),
        ("X-HTTP-Method-Override", "GET"),
        ("Forwarded", "for=10.0.0.1;host=evil"),
    )
    assert call(port, "POST", "/v1/models", key=None, headers=headers).status == 401
    assert call(port, "GET", "/v1/models", headers=headers).status == 200


def test_thousands_of_wrong_keys_do_no_harm(port: int) -> None:
    """The service stays usable."""
    wrong = format_request(port, "GET", "/v1/models", key="wrong-wrong-wrong-wrong")
    with Connection(port) as connection:
        for _ in range(40):
            connection.send(wrong * 50)
            for _ in range(50):
                assert connection.read_response().status == 401
    assert call(port, "GET", "/v1/models").status == 200
