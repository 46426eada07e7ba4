from __future__ import annotations

import pytest

from auth.hosts import HostRule
from auth.refusals import BAD_HOST, FOREIGN_HOST

FOUR = HostRule.for_listener("127.0.0.1", 8080)
SIX = HostRule.for_listener("::1", 8080)


def test_the_exact_spellings_pass() -> None:
    """The literal address and localhost, with the port."""
    assert FOUR.judge([b"127.0.0.1:8080"]) is None
    assert FOUR.judge([b"localhost:8080"]) is None
    assert SIX.judge([b"[::1]:8080"]) is None
    assert SIX.judge([b"localhost:8080"]) is None


def test_the_default_port_may_be_left_out() -> None:
    """On port 80, and on no other port."""
    rule = HostRule.for_listener("127.0.0.1", 80)
    assert rule.judge([b"127.0.0.1"]) is None
    assert rule.judge([b"localhost:80"]) is None
    assert FOUR.judge([b"127.0.0.1"]) is FOREIGN_HOST


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:8080",
        b"127.0.0.1.evil.example:8080",
        b"localhost.evil:8080",
        b"127.0.0.1:8081",
        b"127.0.0.1:08080",
        b"0.0.0.0:8080",
        b"[::]:8080",
        b"[::1]:8080",
        b"[0:0:0:0:0:0:0:1]:8080",
        b"2130706433:8080",
        b"0x7f.1:8080",
        b"127.1:8080",
        b"localhost",
        b"localhost.:8080",
        b"LOCALHOST:8080",
        b"Localhost:8080",
    ],
)
def test_other_names_are_forbidden(host: bytes) -> None:
    """A well-formed name that is not one of ours."""
    assert FOUR.judge([host]) is FOREIGN_HOST


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [b""],
        [b"127.0.0.1:8080", b"127.0.0.1:8080"],
        [b"user@127.0.0.1:8080"],
        [b"127.0.0.1:8080/livez"],
        [b"127.0.0.1/livez?x=:8080"],
        [b"127.0.0.1:8080?x"],
        [b"127.0.0.1 :8080"],
        [b"127.0.0.1:8080\t"],
        [b"127.0.0.1:8080,evil"],
        [b"127.0.0.1:"],
        [b"::1:8080"],
        [b"[::1:8080"],
        [b"127.0.0.1:123456"],
        [b"\xff"],
    ],
)
def test_malformed_hosts_are_bad_requests(hosts: list[bytes]) -> None:
    """Missing, repeated or not of the form name:port."""
    assert FOUR.judge(hosts) is BAD_HOST
