from __future__ import annotations

import pytest

from server.errors import ApiError
from server.json_body import parse_object


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "syntax error at line 1 column 2"),
        (b"[]", "it must be an object"),
        (b'{"a": 1, "a": 2}', "an object has the same key twice"),
        (b'{"a": NaN}', "NaN and Infinity are not JSON"),
        (b'{"a": 1e999}', "a number is too large"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b"[" * 1_000_000, "it is nested deeper than 64 levels"),
        (b'{"\\ud83d": 1}', "a key holds half of a surrogate pair, which is no character"),
    ],
)
def test_bodies_that_are_refused(body: bytes, reason: str) -> None:
    """What is no strict JSON is a 400 that says why and names no field."""
    with pytest.raises(ApiError) as caught:
        parse_object(body)
    assert str(caught.value) == f"The body is not acceptable JSON: {reason}."
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_json", None)


def test_half_surrogate_pairs_are_found() -> None:
    """A text that is no text is a 400 that names its field."""
    with pytest.raises(ApiError, match=r"^a\[1\]\.b: the text holds half of a surrogate pair") as caught:
        parse_object(b'{"a": [{"b": "x"}, {"b": "\\uDE00x"}]}')
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_value", "a[1].b")


def test_an_object() -> None:
    """What is accepted comes back as it is."""
    assert parse_object(b' {"a": [1, 2.5, null, "\\ud83d\\ude00"]}\r\n') == {
        "a": [1, 2.5, None, "\U0001f600"]
    }
