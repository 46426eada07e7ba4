"""Every limit of the server: default, range, and what it bounds. The command line offers one flag each.

Sizes are bytes, times are seconds. `docs/http.md` prints this table and a test compares the two.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """What a limit may be set to, and its one-line description."""

    low: float
    high: float
    help: str


def _limit(default: float, low: float, high: float, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"bounds": Bounds(low, high, text)})


@dataclass(frozen=True)
class Limits:
    """The limits of one server; a field `body_bytes` is the flag `--body-bytes`."""

    queue: int = _limit(8, 0, 1024, "requests that may wait while one runs; more get 429")
    connections: int = _limit(256, 8, 4096, "open connections; idle ones are closed for new ones")
    header_bytes: int = _limit(16_384, 1024, 65_536, "request line and header fields of one request")
    body_bytes: int = _limit(1 << 20, 1024, 64 << 20, "body of one request")
    output_bytes: int = _limit(4 << 20, 1024, 64 << 20, "text of one answer; more ends it with 'length'")
    default_max_tokens: int = _limit(1024, 1, 1 << 20, "tokens of an answer whose request names no number")
    header_seconds: float = _limit(10, 0.1, 600, "time to receive a request's header, from its first byte")
    body_seconds: float = _limit(30, 0.1, 3600, "time to receive a request's body")
    idle_seconds: float = _limit(30, 0.1, 3600, "time that a connection may stay open between requests")
    send_stall_seconds: float = _limit(30, 0.1, 3600, "time that a client may leave output unread")
    heartbeat_seconds: float = _limit(5, 0.1, 60, "interval of the comments that keep a stream alive")
    generation_seconds: float = _limit(600, 0.1, 86_400, "time of one generation, from when it starts to run")
    drain_seconds: float = _limit(10, 0, 600, "time that a running answer may still take at shutdown")

    @classmethod
    def bounds(cls) -> dict[str, Bounds]:
        """Field name → bounds, in the order of the fields."""
        return {field.name: field.metadata["bounds"] for field in dataclasses.fields(cls)}
