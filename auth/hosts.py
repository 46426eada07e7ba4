"""The Host rule: a request must name this server, by one of the exact spellings that were configured.

It stops DNS rebinding, where a foreign name resolves to the loopback address. Spellings are compared as
bytes, port included, without case folding, trailing dots or any other kindness.
"""

from __future__ import annotations

import ipaddress
import re

from auth.refusals import BAD_HOST, FOREIGN_HOST, Refusal

# An IPv6 literal in brackets or a name or IPv4 address, then perhaps a port.
_WELL_FORMED = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


class HostRule:
    """The set of Host values that name this server."""

    def __init__(self, spellings: frozenset[bytes]) -> None:
        """`spellings`: complete values with port, for example `127.0.0.1:8080` or `[::1]:8080`."""
        self.spellings = spellings

    @classmethod
    def for_listener(cls, address: str, port: int) -> HostRule:
        """Return the rule for a listener on a loopback `address`: the address itself and `localhost`."""
        literal = f"[{address}]" if ipaddress.ip_address(address).version == 6 else address
        names = {f"{literal}:{port}", f"localhost:{port}"}
        if port == 80:  # clients leave the default port out
            names |= {literal, "localhost"}
        return cls(frozenset(name.encode("ascii") for name in names))

    def judge(self, values: list[bytes]) -> Refusal | None:
        """Judge all Host headers of one request; exactly one, exactly right, passes."""
        if len(values) != 1 or _WELL_FORMED.fullmatch(values[0]) is None:
            return BAD_HOST
        return None if values[0] in self.spellings else FOREIGN_HOST
