"""uvicorn's h11 connection with the bounds that uvicorn has none for.

Absolute deadlines for receiving a header and a body, a deadline for a client that leaves output unread, a
cap on connections, no bare line feeds in headers, and errors of the HTTP layer in the same JSON shape as
all others. It knows HTTP bytes and clocks, and nothing of routes.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from auth.refusals import SAFE_HEADERS, error_document
from engine.json_line import to_json
from server.limits import Limits

_BARE_LINE_FEED = re.compile(rb"(?<!\r)\n")
_HEADERS = [(b"content-type", b"application/json"), *SAFE_HEADERS, (b"connection", b"close")]
_MESSAGES = {
    400: ("This is not a valid HTTP/1.1 request.", "invalid_request_error", "invalid_http"),
    431: ("The header fields are too long.", "invalid_request_error", "headers_too_large"),
    501: ("This transfer coding is not supported.", "invalid_request_error", "unsupported_coding"),
    503: ("Too many connections are open.", "server_error", "too_many_connections"),
}


def bounded_protocol(limits: Limits) -> type[H11Protocol]:
    """The protocol class to give to uvicorn."""
    return type("BoundedProtocol", (_BoundedProtocol,), {"limits": limits})


class _BoundedProtocol(H11Protocol):
    limits: ClassVar[Limits]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._receiving: Any = None  # h11's name of the phase that the receipt timer is for
        self._receipt: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._head_tail = b""  # the last bytes of an incomplete header
        self._since = 0.0  # loop time when something last happened

    # Receiving

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection if the cap allows it, and start the clock for its first header."""
        super().connection_made(transport)
        self._since = self.loop.time()
        # asyncio does this only for sockets whose protocol number was spelled out; without it small events
        # wait for the client's delayed acknowledgements, 40 ms each.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self.limits.connections and not self._close_an_idle_one():
            self._refuse(503)
            return
        self._watch_receipt()

    def data_received(self, data: bytes) -> None:
        """Pass bytes to h11; whatever they completed or began moves the receipt clock."""
        if self.transport.is_closing():
            return
        self._since = self.loop.time()
        if self.conn.their_state is h11.IDLE and self._has_bare_line_feed(data):
            self._refuse(400)
            return
        super().data_received(data)
        self._watch_receipt()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        for timer in (self._receipt, self._stall):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _has_bare_line_feed(self, data: bytes) -> bool:
        seen = len(self._head_tail)
        head, end, _ = (self._head_tail + data).partition(b"\r\n\r\n")
        self._head_tail = b"" if end else head[-3:]
        return _BARE_LINE_FEED.search(head, seen) is not None

    def _watch_receipt(self) -> None:
        """Run a clock while a header or a body is incomplete; a new phase starts a new clock."""
        state = self.conn.their_state
        phase = state if state in (h11.IDLE, h11.SEND_BODY) else None
        if phase is self._receiving:
            return
        if self._receipt is not None:
            self._receipt.cancel()
            self._receipt = None
        self._receiving = phase
        if phase is not None:
            seconds = self.limits.header_seconds if phase is h11.IDLE else self.limits.body_seconds
            self._receipt = self.loop.call_later(seconds, self._receipt_expired)

    def _receipt_expired(self) -> None:
        self.transport.close()
        self._expect_flush()

    def _close_an_idle_one(self) -> bool:
        """Make room: close the connection that has been between requests for longest."""
        idle = [
            other for other in self.connections if isinstance(other, _BoundedProtocol) and other.is_idle()
        ]
        if not idle:
            return False
        min(idle, key=lambda other: other._since).transport.close()
        return True

    def is_idle(self) -> bool:
        """Whether no request is being received or answered, and none was for a second."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and self.conn.their_state is h11.IDLE and self.loop.time() - self._since >= 1.0

    # Sending

    def pause_writing(self) -> None:
        """The client does not read: give it until the stall deadline."""
        super().pause_writing()
        self._start_stall_clock()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def on_response_complete(self) -> None:
        """Between requests uvicorn's idle timer rules, until the next byte comes."""
        self._since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:  # a pipelined request has begun
            self._watch_receipt()
        self._expect_flush()

    def shutdown(self) -> None:
        """The server ends; a connection in a broken state must not stop it from ending."""
        with suppress(h11.LocalProtocolError):
            super().shutdown()
        self._expect_flush()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that stayed idle."""
        super().timeout_keep_alive_handler()
        self._expect_flush()

    def _expect_flush(self) -> None:
        """A closing connection lives until its output is read: bound that too."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._start_stall_clock()

    def _start_stall_clock(self) -> None:
        if self._stall is None:
            self._stall = self.loop.call_later(self.limits.send_stall_seconds, self.transport.abort)

    # Refusing

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's text stays unused
        """Answer bytes that are no HTTP request (called by uvicorn while it handles h11's error)."""
        error = sys.exc_info()[1]
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        self._refuse(hint if hint in _MESSAGES else 400)

    def _refuse(self, status: int) -> None:
        """Answer by ourselves, if no answer has begun, and close."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            message, kind, code = _MESSAGES[status]
            body = to_json(error_document(message, kind, code=code)).encode("ascii")
            length = (b"content-length", str(len(body)).encode("ascii"))
            for event in (
                h11.Response(
                    status_code=status, headers=[*_HEADERS, length], reason=HTTPStatus(status).phrase
                ),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self._expect_flush()
