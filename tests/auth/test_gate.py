from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from auth.gate import Gate, Headers, Preflight, literal_path
from auth.hosts import HostRule
from auth.keys import Key
from auth.origins import OriginRule
from auth.refusals import (
    BAD_FRAMING,
    BAD_HOST,
    BAD_TARGET,
    FOREIGN_HOST,
    FOREIGN_ORIGIN,
    NO_KEY,
    NO_WEBSOCKET,
    TOO_MANY_HEADERS,
    Refusal,
)

KEY = b"0123456789abcdef"
HOST = (b"host", b"127.0.0.1:8080")
GOOD = (b"authorization", b"Bearer " + KEY)


class Recorder:
    """An application and both ends of its connection, for one request."""

    def __init__(self) -> None:
        self.seen: list[Scope] = []
        self.sent: list[Message] = []
        self.received = 0
        self.refused: list[Refusal] = []
        self.gate = Gate(
            self.app,
            key=Key(KEY.decode()),
            hosts=HostRule(frozenset({HOST[1]})),
            origins=OriginRule(frozenset({b"https://app.example"})),
            header_bytes=16_384,
            on_refusal=self.refused.append,
        )

    async def app(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Remember the scope and answer 200."""
        self.seen.append(scope)
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
            await send({"type": "http.response.body", "body": b"inside"})

    def run(self, scope: dict[str, Any]) -> list[Message]:
        """Send one scope through the gate."""

        async def receive() -> Message:
            self.received += 1
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            self.sent.append(message)

        asyncio.run(self.gate(scope, receive, send))
        return self.sent

    def request(self, method: str, path: str, *headers: tuple[bytes, bytes]) -> int:
        """Send one request with a right Host through the gate; the status of the answer."""
        sent = self.run(
            {
                "type": "http",
                "method": method,
                "path": path,
                "raw_path": path.encode(),
                "headers": [HOST, *headers],
            }
        )
        return int(sent[0]["status"])


@pytest.fixture
def recorder() -> Recorder:
    """A fresh gate around a recording application."""
    return Recorder()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_needs_no_key(recorder: Recorder, method: str, path: str) -> None:
    """The short public list."""
    assert recorder.request(method, path) == 200


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "ODD"]
)
@pytest.mark.parametrize(
    "path",
    ["/", "/v1/models", "/unknown", "/livez/", "/livez/x", "/LIVEZ", "//livez", "/./livez", "/%6civez"],
)
def test_everything_else_needs_the_key(recorder: Recorder, method: str, path: str) -> None:
    """Known or not, whatever the method: 401 with a challenge, and the application is not reached."""
    assert recorder.request(method, path) == 401
    assert (b"www-authenticate", b"Bearer") in recorder.sent[0]["headers"]
    assert recorder.seen == []
    assert recorder.received == 0
    assert recorder.refused == [NO_KEY]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_public_means_reading_only(recorder: Recorder, method: str) -> None:
    """A public path is public for GET and HEAD alone."""
    assert recorder.request(method, "/readyz") == 401


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER", b"bEARER"])
def test_the_scheme_is_case_insensitive(recorder: Recorder, scheme: bytes) -> None:
    """As HTTP has it."""
    assert recorder.request("GET", "/v1/models", (b"authorization", scheme + b" " + KEY)) == 200


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer" + KEY,
        b"Bearer  " + KEY,
        b"Bearer\t" + KEY,
        b" Bearer " + KEY,
        b"Bearer " + KEY + b" ",
        b"Bearer " + KEY + b"\0",
        b"Bearer " + KEY[:-1],
        b"Bearer " + KEY + b"x",
        b"Bearer " + KEY.upper(),
        b'Bearer "' + KEY + b'"',
        b"Bearer " + KEY + b", Bearer " + KEY,
        b"Bearer " + KEY + b"," + KEY,
        b"Basic " + KEY,
        b"Token " + KEY,
        KEY,
        b"Bearer \xff\xfe" + KEY,
    ],
)
def test_other_credentials_are_refused(recorder: Recorder, value: bytes) -> None:
    """Always 401, never an exception."""
    assert recorder.request("GET", "/v1/models", (b"authorization", value)) == 401


@pytest.mark.parametrize(
    "headers",
    [
        (GOOD, (b"authorization", b"Bearer wrong")),
        ((b"authorization", b"Bearer wrong"), GOOD),
        (GOOD, GOOD),
        ((b"x-api-key", KEY),),
        ((b"cookie", b"key=" + KEY),),
        ((b"proxy-authorization", b"Bearer " + KEY),),
    ],
)
def test_one_authorization_header_or_none(recorder: Recorder, headers: Headers) -> None:
    """Two of them, or the key in another header, do not count."""
    assert recorder.request("GET", "/v1/models", *headers) == 401


def test_every_response_is_safe(recorder: Recorder) -> None:
    """The application's own headers are kept, the safe ones are added."""
    recorder.request("GET", "/livez")
    headers = recorder.sent[0]["headers"]
    assert (b"x-own", b"1") in headers
    assert (b"cache-control", b"no-store") in headers
    assert (b"x-content-type-options", b"nosniff") in headers


def test_routing_sees_the_path_as_it_was_sent(recorder: Recorder) -> None:
    """An escaped spelling of a route does not become the route."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/models",
        "raw_path": b"/v1%2fmodels",
        "headers": [HOST, GOOD],
    }
    recorder.run(scope)
    assert recorder.seen[0]["path"] == "/v1%2fmodels"
    assert literal_path({"path": "/a"}) == "/a"


@pytest.mark.parametrize(
    ("path", "headers", "verdict"),
    [
        ("*", [HOST, GOOD], BAD_TARGET),
        ("http://127.0.0.1:8080/livez", [HOST, GOOD], BAD_TARGET),
        ("", [HOST, GOOD], BAD_TARGET),
        ("/livez", [], BAD_HOST),
        ("/livez", [(b"host", b"evil")], FOREIGN_HOST),
        ("/v1/models", [(b"host", b"127.0.0.1/livez?x=")], BAD_HOST),
        ("/livez", [HOST, (b"content-length", b"1"), (b"transfer-encoding", b"chunked")], BAD_FRAMING),
        ("/livez", [HOST, *[(b"x", b"y")] * 100], TOO_MANY_HEADERS),
        ("/livez", [HOST, (b"x", b"y" * 16_400)], TOO_MANY_HEADERS),
        ("/livez", [HOST, (b"upgrade", b"WebSocket")], NO_WEBSOCKET),
        ("/v1/models", [HOST, GOOD, (b"origin", b"https://evil.example")], FOREIGN_ORIGIN),
        ("/v1/models", [HOST, GOOD, (b"sec-fetch-site", b"cross-site")], FOREIGN_ORIGIN),
        ("/livez", [HOST, (b"origin", b"null")], FOREIGN_ORIGIN),
    ],
)
def test_what_is_wrong_is_told_in_a_fixed_order(path: str, headers: Headers, verdict: Refusal) -> None:
    """Target, headers, framing, host, upgrade and origin are judged before the key."""
    assert Recorder().gate.judge("GET", path, headers) is verdict


def test_a_preflight_of_a_listed_origin_has_no_effect(recorder: Recorder) -> None:
    """It is answered without a key and does not reach the application."""
    status = recorder.request(
        "OPTIONS",
        "/v1/chat/completions",
        (b"origin", b"https://app.example"),
        (b"access-control-request-method", b"POST"),
    )
    headers = dict(recorder.sent[0]["headers"])
    assert status == 204
    assert headers[b"access-control-allow-origin"] == b"https://app.example"
    assert headers[b"access-control-allow-methods"] == b"GET, POST"
    assert recorder.seen == []


def test_a_preflight_of_another_origin_gets_no_cors_headers(recorder: Recorder) -> None:
    """It is refused like every other request of that origin."""
    status = recorder.request(
        "OPTIONS", "/v1/models", (b"origin", b"https://evil"), (b"access-control-request-method", b"GET")
    )
    assert status == 403
    assert not any(name.startswith(b"access-control") for name, _ in recorder.sent[0]["headers"])


def test_options_without_an_origin_is_no_preflight() -> None:
    """It needs the key."""
    headers = [HOST, (b"access-control-request-method", b"POST")]
    gate = Recorder().gate
    assert gate.judge("OPTIONS", "/v1/models", headers) is NO_KEY
    assert isinstance(
        gate.judge("OPTIONS", "/v1/models", [*headers, (b"origin", b"https://app.example")]), Preflight
    )


def test_a_websocket_is_closed_and_lifespan_passes(recorder: Recorder) -> None:
    """Connections that are not HTTP."""
    assert recorder.run({"type": "websocket"}) == [{"type": "websocket.close", "code": 1008}]
    recorder.run({"type": "lifespan"})
    assert [scope["type"] for scope in recorder.seen] == ["lifespan"]
