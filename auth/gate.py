"""The gate in front of the application: deny by default, decided before any routing.

A pure ASGI wrapper that looks at the method, the path exactly as it was sent, and four headers. A request
passes with the key, or when its method and path are in the short public list. The body is never read
here, and no answer of the gate depends on which routes exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from auth.hosts import HostRule
from auth.keys import Key
from auth.origins import PREFLIGHT_HEADERS, OriginRule, cors_headers
from auth.refusals import (
    BAD_FRAMING,
    BAD_TARGET,
    NO_KEY,
    NO_WEBSOCKET,
    SAFE_HEADERS,
    TOO_MANY_HEADERS,
    Refusal,
)

PUBLIC: frozenset[tuple[str, str]] = frozenset(
    (method, path) for method in ("GET", "HEAD") for path in ("/livez", "/readyz", "/health")
)
MAX_HEADERS = 100

_BEARER = re.compile(rb"bearer ([A-Za-z0-9\-._~+/]+={0,2})", re.IGNORECASE)

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Preflight:
    """A CORS preflight from a listed origin: answered here, with no key and no effect."""


class Gate:
    """Wraps `app`; every HTTP request is judged first, every response gets the safe headers."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        key: Key,
        hosts: HostRule,
        origins: OriginRule,
        header_bytes: int,
        on_refusal: Callable[[Refusal], None],
    ) -> None:
        """`header_bytes`: limit of target, names and values together; `on_refusal`: told of refusals."""
        self._app = app
        self._key = key
        self._hosts = hosts
        self._origins = origins
        self._header_bytes = header_bytes
        self._on_refusal = on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge one ASGI connection and pass it on, or answer it here."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers: Headers = scope["headers"]
        path = literal_path(scope)
        origin = self._origins.admitted(values(headers, b"origin"))
        send = _with_headers(send, (*SAFE_HEADERS, *(cors_headers(origin) if origin else ())))
        verdict = self.judge(scope["method"], path, headers, scope.get("query_string", b""))
        if isinstance(verdict, Refusal):
            self._on_refusal(verdict)
            await verdict.send(send)
        elif isinstance(verdict, Preflight):
            await send({"type": "http.response.start", "status": 204, "headers": list(PREFLIGHT_HEADERS)})
            await send({"type": "http.response.body", "body": b""})
        else:
            # Routing sees the path as it was sent: an escaped spelling of a route is not that route.
            await self._app({**scope, "path": path}, receive, send)

    def judge(
        self, method: str, path: str, headers: Headers, query: bytes = b""
    ) -> Refusal | Preflight | None:
        """Return why the request is refused, or that it is a preflight, or None when it may pass."""
        refusal = self._malformed(path, headers, query) or self._hosts.judge(values(headers, b"host"))
        if refusal is not None:
            return refusal
        if any(b"websocket" in value.lower() for value in values(headers, b"upgrade")):
            return NO_WEBSOCKET
        origins = values(headers, b"origin")
        refusal = self._origins.judge(origins, values(headers, b"sec-fetch-site"))
        if refusal is not None:
            return refusal
        if method == "OPTIONS" and origins and values(headers, b"access-control-request-method"):
            return Preflight()
        if (method, path) in PUBLIC or self._has_key(headers):
            return None
        return NO_KEY

    def _malformed(self, path: str, headers: Headers, query: bytes) -> Refusal | None:
        if not path.startswith("/"):
            return BAD_TARGET
        size = len(path) + len(query) + sum(len(name) + len(value) for name, value in headers)
        if len(headers) > MAX_HEADERS or size > self._header_bytes:
            return TOO_MANY_HEADERS
        if values(headers, b"content-length") and values(headers, b"transfer-encoding"):
            return BAD_FRAMING
        return None

    def _has_key(self, headers: Headers) -> bool:
        presented = values(headers, b"authorization")
        if len(presented) != 1:
            return False
        match = _BEARER.fullmatch(presented[0])
        return match is not None and self._key.matches(match[1])


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return all values of the header `name` (lower case), in order."""
    return [value for key, value in headers if key == name]


def literal_path(scope: Scope) -> str:
    """Return the path of the request as it was sent, percent signs and all."""
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"]
    return path if raw is None else raw.decode("latin-1")


def _with_headers(send: Send, extra: Iterable[tuple[bytes, bytes]]) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Headers = list(message.get("headers", ()))
            present = {name.lower() for name, _ in headers}
            headers += [(name, value) for name, value in extra if name not in present]
            message = {**message, "headers": headers}
        await send(message)

    return wrapped
