"""The one shape of every error body, and a refusal as a value that can send itself over ASGI.

The shape is OpenAI's, because clients of that interface read no other. The texts here are constant: they
name no model, no path and nothing of the request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from starlette.types import Send

SAFE_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)


def error_document(
    message: str, kind: str, param: str | None = None, code: str | None = None
) -> dict[str, dict[str, str | None]]:
    """Return the error object `{"error": {"message", "type", "param", "code"}}`."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class Refusal:
    """Why a request goes no further: status, error fields, and headers beside the usual ones."""

    status: int
    message: str
    kind: str
    code: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def body(self) -> bytes:
        """Return the JSON error body."""
        document = error_document(self.message, self.kind, code=self.code)
        return json.dumps(document, separators=(",", ":")).encode("ascii")

    def header_list(self) -> list[tuple[bytes, bytes]]:
        """Return every header of the response, security headers included."""
        return [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self.body())).encode("ascii")),
            *SAFE_HEADERS,
            *self.headers,
        ]

    async def send(self, send: Send) -> None:
        """Send this refusal as the whole response."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.header_list()})
        await send({"type": "http.response.body", "body": self.body()})


_CLOSE = ((b"connection", b"close"),)

BAD_TARGET = Refusal(400, "The request target is not a path.", "invalid_request_error", "bad_target", _CLOSE)
BAD_FRAMING = Refusal(
    400,
    "Content-Length and Transfer-Encoding exclude each other.",
    "invalid_request_error",
    "bad_framing",
    _CLOSE,
)
TOO_MANY_HEADERS = Refusal(
    431, "The header fields are too many or too long.", "invalid_request_error", "headers_too_large", _CLOSE
)
NO_WEBSOCKET = Refusal(
    400, "This server does not speak WebSocket.", "invalid_request_error", "no_websocket", _CLOSE
)
BAD_HOST = Refusal(
    400, "The Host header is missing, repeated or malformed.", "invalid_request_error", "bad_host"
)
FOREIGN_HOST = Refusal(403, "The Host header names another server.", "permission_error", "foreign_host")
FOREIGN_ORIGIN = Refusal(
    403, "Requests from this web origin are not allowed.", "permission_error", "foreign_origin"
)
NO_KEY = Refusal(
    401,
    "A valid key is required: Authorization: Bearer KEY.",
    "authentication_error",
    "invalid_api_key",
    ((b"www-authenticate", b"Bearer"),),
)
