from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInputError, UnsupportedTokenizerError
from engine.pretokenizer import PreTokenizer

NAMES = ["qwen2", "qwen35", "smollm"]


def pieces(name: str, text: str) -> list[str]:
    """The pieces of `text` by the named rule."""
    return PreTokenizer(name).split(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("qwen2", "Hello world", ["Hello", " world"]),
        ("qwen2", "I'm, we'LL", ["I", "'m", ",", " we", "'LL"]),
        ("qwen2", "'ſ", ["'ſ"]),
        ("qwen2", "1234", ["1", "2", "3", "4"]),
        ("qwen2", " 12", [" ", "1", "2"]),
        ("qwen2", "a  b", ["a", " ", " b"]),
        ("qwen2", "a \n\n  b", ["a", " \n\n", " ", " b"]),
        ("qwen2", "x!!\r\ny", ["x", "!!\r\n", "y"]),
        ("qwen2", "end   ", ["end", "   "]),
        ("qwen2", "\tx", ["\tx"]),
        ("qwen2", "e\u0301a", ["e", "\u0301a"]),
        ("qwen35", "e\u0301a", ["e\u0301a"]),
        ("qwen35", "नमस्ते", ["नमस्ते"]),
        ("qwen35", " \u0301", [" \u0301"]),
        ("qwen35", "1\u0301", ["1", "\u0301"]),
        ("smollm", "Hello world", ["Hello", " world"]),
        ("smollm", "I'm, we'LL", ["I", "'m", ",", " we", "'", "LL"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("smollm", "a   12", ["a", "   ", "1", "2"]),
        ("smollm", "a   b", ["a", "  ", " b"]),
        ("smollm", "a\n\tb", ["a", "\n", "\t", "b"]),
        ("smollm", "a\n\t1", ["a", "\n\t", "1"]),
        ("smollm", "x!!\n", ["x", "!!", "\n"]),
    ],
)
def test_boundaries(name: str, text: str, expected: list[str]) -> None:
    """Hand-derived boundaries of each rule."""
    assert pieces(name, text) == expected


@pytest.mark.parametrize("name", ["refact", "starcoder"])
def test_same_rule_under_other_names(name: str) -> None:
    """Names that other models use for the smollm rule give the same pieces."""
    text = "def f(x1):\n\treturn  x1 + 42\n"
    assert pieces(name, text) == pieces("smollm", text)


@pytest.mark.parametrize("name", ["", "default", "qwen", "QWEN2", "llama-bpe"])
def test_unknown_names(name: str) -> None:
    """An unknown rule is refused by name and never replaced by a similar one."""
    with pytest.raises(UnsupportedTokenizerError, match=f"pre-tokenizer '{name}'; supported are qwen2"):
        PreTokenizer(name)


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text())
def test_nothing_is_lost(name: str, text: str) -> None:
    """The pieces of any text, joined, are the text, and none is empty."""
    found = pieces(name, text)
    assert "".join(found) == text
    assert all(found)


@pytest.mark.parametrize("letter", ["x", "é", "中", "😀"])
def test_bound_of_a_piece(letter: str) -> None:
    """64 KiB of UTF-8 in one piece are admitted, one character more is not."""
    most = 65536 // len(letter.encode())
    rule = PreTokenizer("qwen35")
    assert rule.split("a 1" + letter * most)[-1] == letter * most
    with pytest.raises(
        InvalidInputError, match=f"has {(most + 1) * len(letter.encode())} bytes; at most 65536"
    ):
        rule.split(letter * (most + 1))


def test_bound_of_the_pieces() -> None:
    """262,144 pieces are admitted, one more is not."""
    rule = PreTokenizer("qwen35")
    assert len(rule.split("1" * 262_144)) == 262_144
    with pytest.raises(InvalidInputError, match="more than 262144 words"):
        rule.split("1" * 262_145)


def test_the_iterator_is_lazy_and_stops_after_an_error() -> None:
    """Pieces before a bad one are given out; whoever does not take all has not checked all."""
    pieces = PreTokenizer("qwen35").pieces("1" + "x" * 65537 + " 2")
    assert next(pieces) == "1"
    with pytest.raises(InvalidInputError):
        next(pieces)
    assert list(pieces) == []
