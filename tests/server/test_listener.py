from __future__ import annotations

import errno
import socket

import pytest

from engine.errors import InvalidInputError
from server.listener import ListenError, _explain, bind, check_loopback


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1"])
def test_loopback_addresses_are_accepted(address: str) -> None:
    """Literal ones."""
    assert check_loopback(address) == address


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "::", "192.168.1.1", "10.0.0.1", "localhost", "example.com", "", "127.1", "::ffff:1.2.3.4"],
)
def test_other_addresses_are_refused(address: str) -> None:
    """Names too, since what they resolve to can change."""
    with pytest.raises(InvalidInputError, match="not a loopback IP address"):
        check_loopback(address)


def test_a_taken_port_is_an_error() -> None:
    """No second listener, and no other port instead."""
    first = bind("127.0.0.1", 0)
    first.listen()
    port = first.getsockname()[1]
    try:
        with pytest.raises(ListenError, match=f"port {port}: another program listens there"):
            bind("127.0.0.1", port)
    finally:
        first.close()


def test_the_system_chooses_a_free_port() -> None:
    """Two sockets on port 0 get two ports; children do not inherit them."""
    first, second = bind("127.0.0.1", 0), bind("127.0.0.1", 0)
    try:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert not first.get_inheritable()
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EADDRINUSE, "another program"),
        (errno.EACCES, "reserves"),
        (errno.EADDRNOTAVAIL, "no such address"),
        (10048, "another program"),
        (10013, "reserves"),
        (errno.EIO, "cannot listen"),
    ],
)
def test_failures_name_their_cause(code: int, words: str) -> None:
    """On Windows a reserved range is not the same as a taken port."""
    assert words in _explain("127.0.0.1", 80, OSError(code, "text"))


def test_ipv6_is_bound_when_asked_for() -> None:
    """If the machine has it."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listener = bind("::1", 0)
    except ListenError:
        pytest.skip("no IPv6 loopback here")
    assert listener.family == socket.AF_INET6
    listener.close()
