from __future__ import annotations

import pytest

from auth.errors import KeyFormatError
from auth.keys import Key

TEXT = "0123456789abcdef-._~+/AZ=="


def test_a_key_matches_itself_alone() -> None:
    """Wrong keys of equal, smaller and greater length, and near misses, do not match."""
    key = Key(TEXT)
    assert key.matches(TEXT.encode())
    for wrong in (
        b"",
        TEXT[:-1].encode(),
        TEXT.encode() + b"=",
        TEXT.encode() + b"\0",
        TEXT.encode() + b" ",
        TEXT.upper().encode(),
        b"x" * len(TEXT),
        "ключ".encode(),
    ):
        assert not key.matches(wrong)


def test_a_key_does_not_show_itself() -> None:
    """repr, str and formatting are masked, in containers too; only reveal gives the text."""
    key = Key(TEXT)
    for shown in (repr(key), str(key), f"{key}", f"{[key]}", f"{key!r:>20}"):
        assert TEXT not in shown
        assert "****" in shown
    assert not hasattr(key, "__dict__")
    assert key.reveal() == TEXT


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"),
        ("short", "5 characters"),
        ("a" * 15, "15 characters"),
        ("a" * 513, "513 characters"),
        ("sixteen chars ok", "white space"),
        ("0123456789abcdef\r", "carriage return"),
        ("0123456789abcdef\n0123456789abcdef", "second line"),
        ("\ufeff0123456789abcdef", "byte order mark"),
        ("0123456789abcdefé", "characters outside"),
        ("0123456789abcd==ef", "characters outside"),
    ],
)
def test_texts_that_are_no_keys_are_refused(text: str, word: str) -> None:
    """The message says which rule is broken and does not repeat the text."""
    with pytest.raises(KeyFormatError, match=word) as caught:
        Key(text)
    assert not text or text not in str(caught.value)


def test_generated_keys_are_long_and_differ() -> None:
    """Two new keys have 43 allowed characters each and are not the same."""
    first, second = Key.generate(), Key.generate()
    assert len(first.reveal()) == 43
    assert Key(first.reveal()).matches(first.reveal().encode())
    assert first.reveal() != second.reveal()
