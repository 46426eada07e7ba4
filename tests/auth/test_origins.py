from __future__ import annotations

import pytest

from auth.origins import OriginRule, cors_headers, is_origin
from auth.refusals import FOREIGN_ORIGIN

RULE = OriginRule(frozenset({b"https://app.example"}))


@pytest.mark.parametrize(
    "origins",
    [
        [b"https://evil.example"],
        [b"null"],
        [b""],
        [b"http://app.example"],
        [b"https://app.example:443"],
        [b"https://app.example/"],
        [b"https://APP.example"],
        [b"http://localhost:3000"],
        [b"chrome-extension://abcdef"],
        [b"https://app.example", b"https://app.example"],
        [b"https://app.example", b"https://evil.example"],
    ],
)
def test_only_the_exact_listed_origin_passes(origins: list[bytes]) -> None:
    """Everything else is refused, near misses and repetitions included."""
    assert RULE.judge(origins, []) is FOREIGN_ORIGIN
    assert RULE.admitted(origins) is None


def test_the_listed_origin_passes_from_another_site() -> None:
    """A listed origin is welcome even when the browser says that it is another site."""
    assert RULE.judge([b"https://app.example"], [b"cross-site"]) is None
    assert RULE.admitted([b"https://app.example"]) == b"https://app.example"


def test_no_origin_is_listed_by_default() -> None:
    """Programs pass, web pages do not."""
    assert OriginRule().judge([], []) is None
    assert OriginRule().judge([b"https://app.example"], []) is FOREIGN_ORIGIN


@pytest.mark.parametrize("site", [b"cross-site", b"same-site", b"strange"])
def test_requests_of_pages_without_an_origin_are_refused(site: bytes) -> None:
    """Images and scripts carry Sec-Fetch-Site only."""
    assert RULE.judge([], [site]) is FOREIGN_ORIGIN


@pytest.mark.parametrize("site", [b"none", b"same-origin"])
def test_an_address_typed_by_the_user_passes(site: bytes) -> None:
    """The user opening /livez in a browser is no attack."""
    assert RULE.judge([], [site]) is None


def test_credentials_are_never_allowed() -> None:
    """The echo is exact, varies by origin, and has no credentials header."""
    headers = dict(cors_headers(b"https://app.example"))
    assert headers[b"access-control-allow-origin"] == b"https://app.example"
    assert headers[b"vary"] == b"Origin"
    assert b"access-control-allow-credentials" not in headers


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("https://app.example", True),
        ("http://localhost:3000", True),
        ("http://[::1]:3000", True),
        ("chrome-extension://abc", True),
        ("*", False),
        ("null", False),
        ("https://app.example/", False),
        ("https://APP.example", False),
        ("https://user@app.example", False),
        ("https://a.example, https://b.example", False),
        ("app.example", False),
        ("https://bücher.example", False),
    ],
)
def test_only_whole_origins_can_be_listed(text: str, right: bool) -> None:
    """No wildcards, no paths, no lists."""
    assert is_origin(text) is right
