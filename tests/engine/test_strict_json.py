from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.strict_json import MAX_DEPTH, StrictJsonError, field_name, parse_object, without_strings

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda children: st.lists(children) | st.dictionaries(TEXTS, children),
    max_leaves=20,
)


@settings(max_examples=40)
@given(st.dictionaries(TEXTS, VALUES), st.booleans())
def test_ordinary_objects_are_read_as_they_are(value: dict[str, Any], ascii_only: bool) -> None:
    """With characters escaped or not."""
    assert parse_object(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "syntax error at line 1 column 1"),
        (b"{", "syntax error"),
        (b"{}x", "syntax error"),
        (b'{"a": 1,}', "syntax error"),
        (b"{'a': 1}", "syntax error"),
        (b'{"a": 01}', "syntax error"),
        (b"[]", "must be an object"),
        (b'"text"', "must be an object"),
        (b"null", "must be an object"),
        (b'{"a": 1, "a": 2}', "same key twice"),
        (b'{"a": {"b": 1, "\\u0062": 2}}', "same key twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "NaN and Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8"),
        (b'{"a": "\xed\xa0\xbd"}', "not UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "syntax error"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
        (b'{"a": "' + b"\x01" + b'"}', "syntax error"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper"),
        (b'{"a": ' * 100_000, "nested deeper"),
        (b"[" * 1_000_000, "nested deeper"),
        (b'{"a": "' + b'\\"' * 500_000, "syntax error"),
    ],
)
def test_what_is_refused(body: bytes, reason: str) -> None:
    """With a reason that is about the JSON and not about a field, in bounded time."""
    with pytest.raises(StrictJsonError, match=reason) as caught:
        parse_object(body)
    assert (caught.value.code, caught.value.field) == ("invalid_json", None)


def test_the_depth_limit_counts_brackets_outside_strings() -> None:
    """Brackets inside strings, and escaped quotes there, do not count."""
    text = '[{"\\"' * 200
    assert parse_object(json.dumps({"a": text}).encode()) == {"a": text}
    deep = b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
    assert parse_object(b'{"a": ' + deep + b"}")
    with pytest.raises(StrictJsonError, match="nested"):
        parse_object(b'{"a": [' + deep + b"]}")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"a": "\\ud83d"}', "a"),
        (b'{"a": [{"b": "x"}, {"b": "\\uDE00x"}]}', "a[1].b"),
        (b'{"a": "\\ude00\\ud83d"}', "a"),
        (b'{"messages": [{"content": [{"text": "\\uD83D"}]}]}', "messages[0].content[0].text"),
    ],
)
def test_half_surrogate_pairs_are_found(body: bytes, field: str) -> None:
    """With the path of the text; whole pairs are characters."""
    with pytest.raises(StrictJsonError, match="surrogate") as caught:
        parse_object(body)
    assert caught.value.field == field
    assert parse_object(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_a_key_with_half_a_pair_is_not_repeated() -> None:
    """Neither are keys that look like text."""
    with pytest.raises(StrictJsonError, match="a key holds half") as caught:
        parse_object(b'{"\\ud83d": 1}')
    assert caught.value.field is None
    assert [field_name(key) for key in ("top_k", "x y", "9", "")] == ["top_k", "-", "-", "-"]


def test_without_strings() -> None:
    """Only what stands outside quotes is left, whatever is escaped inside them."""
    assert without_strings(b'{"a\\"-": [-1, "\\\\", "x"], "b": true}') == b"{: [-1, , ], : true}"
