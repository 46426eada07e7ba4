"""The Origin rule: no web page may call this server unless its origin was listed by the owner.

Programs send no Origin; browsers do, and also Sec-Fetch-Site, which tells of requests that carry no
Origin (images, scripts). A listed origin gets the exact echo that CORS needs and never credentials.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from auth.refusals import FOREIGN_ORIGIN, Refusal

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")
_OWN_SITE = (b"none", b"same-origin")

PREFLIGHT_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type"),
    (b"access-control-max-age", b"600"),
)


def is_origin(text: str) -> bool:
    """Tell whether `text` is one origin as browsers send it: lower-case scheme, host, perhaps port."""
    return _ORIGIN.fullmatch(text) is not None


@dataclass(frozen=True)
class OriginRule:
    """The web origins that may call; none unless configured."""

    allowed: frozenset[bytes] = frozenset()

    def judge(self, origins: list[bytes], sites: list[bytes]) -> Refusal | None:
        """Judge the Origin and Sec-Fetch-Site headers of one request."""
        if origins:
            return None if self.admitted(origins) is not None else FOREIGN_ORIGIN
        if any(site not in _OWN_SITE for site in sites):
            return FOREIGN_ORIGIN
        return None

    def admitted(self, origins: list[bytes]) -> bytes | None:
        """Return the one origin of the request if it is listed."""
        return origins[0] if len(origins) == 1 and origins[0] in self.allowed else None


def cors_headers(origin: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that let the page at the listed `origin` read a response."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"retry-after, retry-after-ms, x-request-id"),
        (b"vary", b"Origin"),
    )
