"""Server-sent events through sse-starlette, with what its defaults would break set right.

Lines end with LF; heartbeats are comments, since clients of the OpenAI interface fail on events without
data; the library neither logs chunks nor ends streams at shutdown by itself, because this server drains
its streams; and a stream that failed ends without the final chunk, so that no client takes it for whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.types import Receive, Scope, Send

LINE_END = "\n"


class BrokenOffError(Exception):
    """Raised by a stream's events, after the one that tells the error, to cut the response short."""


class EventStream(EventSourceResponse):
    """A streamed response. `on_close` is called once, however the stream ends."""

    def __init__(
        self,
        events: AsyncIterator[ServerSentEvent],
        *,
        heartbeat_seconds: float,
        comment: Callable[[], str],
        on_close: Callable[[], None],
        headers: dict[str, str],
    ) -> None:
        super().__init__(
            events,
            headers=headers,
            sep=LINE_END,
            ping=heartbeat_seconds,
            ping_message_factory=lambda: comment_event(comment()),
        )
        self.headers["connection"] = "close"  # the library insists on keep-alive before this line
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until its events end or the client goes away."""
        try:
            await super().__call__(scope, receive, send)
        except BrokenOffError:
            pass  # the protocol closes a connection whose response was not completed
        finally:
            self._on_close()


def data_event(text: str) -> ServerSentEvent:
    """One event with one line of data."""
    return ServerSentEvent(text, sep=LINE_END)


def comment_event(text: str) -> ServerSentEvent:
    """A comment: clients ignore it, connections stay alive by it."""
    return ServerSentEvent(comment=text, sep=LINE_END)


def own_the_shutdown() -> None:
    """Keep the library from cancelling streams when uvicorn is told to exit (process-wide)."""
    AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]
