"""The server's own listening socket, bound before anything else starts and handed to uvicorn.

Binding it ourselves gives the real port for the ready record and for the Host rule, and on Windows an
exclusive hold on the port that no other program can share.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys

from engine.errors import InvalidInputError


class ListenError(Exception):
    """The address or port cannot be had; `str(error)` says why, in one sentence."""


def check_loopback(address: str) -> str:
    """`address` if it is a loopback IP address; other addresses would need TLS, which is not there."""
    try:
        loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidInputError(
            f"the address {address} is not a loopback IP address such as 127.0.0.1 or ::1; "
            "this server does not listen elsewhere",
            "host",
        )
    return address


def bind(address: str, port: int) -> socket.socket:
    """A bound socket, not yet listening. Port 0 lets the system choose."""
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform == "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:  # only skips the wait after an earlier server; two listeners are refused nevertheless
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise ListenError(_explain(address, port, error)) from None
    listener.setblocking(False)
    return listener


def _explain(address: str, port: int, error: OSError) -> str:
    code = getattr(error, "winerror", None) or error.errno
    if code in (errno.EADDRINUSE, 10048):
        cause = "another program listens there"
    elif code in (errno.EACCES, 10013):
        cause = "the system reserves this port, or it needs more rights"
    elif code in (errno.EADDRNOTAVAIL, 10049):
        cause = "this machine has no such address"
    else:
        cause = error.strerror or "the system gave no reason"
    return f"cannot listen on {address} port {port}: {cause}; port 0 takes any free one"
