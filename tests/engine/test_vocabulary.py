from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InvalidInputError, MetadataError
from engine.metadata import Metadata, ValueType
from engine.vocabulary import BYTE_ALPHABET, Vocabulary
from tests.gguf_writer import GgufWriter
from tests.vocabularies import LETTERS, metadata_of, small, tokenizer


def vocabulary(tokens: list[Any], types: list[int] | None = None) -> Vocabulary:
    """A vocabulary of these tokens, through a real file."""
    writer = GgufWriter().add("tokenizer.ggml.tokens", "[string]", tokens)
    if types is not None:
        writer.add("tokenizer.ggml.token_type", "[i32]", types)
    return Vocabulary.from_metadata(metadata_of(writer))


def test_byte_alphabet() -> None:
    """Bytes are spelled by the characters that GPT-2's table gives them."""
    assert list(BYTE_ALPHABET) == LETTERS
    assert BYTE_ALPHABET[ord(" ")] == "Ġ"
    assert BYTE_ALPHABET[ord("\n")] == "Ċ"
    assert BYTE_ALPHABET[0xAD] == "Ń"


def test_pieces_by_type() -> None:
    """Normal and byte tokens decode through the byte alphabet, all others stand for their own text."""
    words = vocabulary(["Ġhi", "<u>", "<|im_end|>", "two words é", "[PAD4]", "Ċ"], [1, 2, 3, 4, 5, 6])
    assert [words.piece(token) for token in range(6)] == [
        b" hi",
        b"<u>",
        b"<|im_end|>",
        "two words é".encode(),
        b"[PAD4]",
        b"\n",
    ]
    assert words.decode([0, 5, 3]) == " hi\ntwo words é".encode()
    assert [words.is_control(token) for token in range(6)] == [False, False, True, False, False, False]
    assert words.unused == {4}
    assert words.special == {"<|im_end|>": 2, "two words é": 3}
    assert words.size == 6


def test_types_are_optional() -> None:
    """Without token types every token is a normal one."""
    words = vocabulary(["a", "Ġb"])
    assert words.decode([0, 1]) == b"a b"
    assert not words.special
    assert not words.is_control(1)


@pytest.mark.parametrize("token", [-1, 2, 2**40])
def test_ids_outside(token: int) -> None:
    """Ids outside the vocabulary are refused, negative ones too."""
    words = vocabulary(["a", "b"])
    with pytest.raises(InvalidInputError, match="outside the vocabulary of 2"):
        words.piece(token)
    with pytest.raises(InvalidInputError, match="outside the vocabulary of 2"):
        words.decode([0, token])
    with pytest.raises(InvalidInputError, match="outside the vocabulary of 2"):
        words.is_control(token)


@pytest.mark.parametrize(
    ("tokens", "types", "message"),
    [
        ([], None, "has 0 entries"),
        (["a", "b"], [1], "has 1 entries for 2 tokens"),
        (["a", "b"], [1, 7], r"token_type\[1\] is 7"),
        (["a", "b"], [0, 1], r"token_type\[0\] is 0"),
        (["a", "two words"], [1, 1], r"tokens\[1\] has a character"),
        (["a", "中"], [3, 1], r"tokens\[1\] has a character"),
        (["a", "<" * 1025], [1, 3], r"tokens\[1\] is a special token of 1025"),
    ],
)
def test_refusals(tokens: list[str], types: list[int] | None, message: str) -> None:
    """A vocabulary that breaks a rule is refused, naming the entry."""
    with pytest.raises(MetadataError, match=message):
        vocabulary(tokens, types)


def test_size_bounds() -> None:
    """A piece is at most 1 MiB and the vocabulary at most 64 MiB."""
    assert vocabulary(["a" * (1 << 20)]).size == 1
    with pytest.raises(MetadataError, match="holds 67108865 bytes"):
        Vocabulary.from_metadata(metadata_of(GgufWriter().add("tokenizer.ggml.tokens", "[string]", BIG)))


BIG = ["a" * (1 << 20)] * 64 + ["b"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["a"] * 1_000_001, "has 1000001 entries; 1 to 1000000"),
        (["a" * ((1 << 20) + 1)], "an entry of more than 1048576"),
    ],
    ids=["entries", "piece"],
)
def test_count_and_piece_bounds(tokens: list[str], message: str) -> None:
    """A million tokens of 1 MiB each are the most, whatever they hold together."""
    with pytest.raises(MetadataError, match=message):
        Vocabulary.from_metadata(Metadata({"tokenizer.ggml.tokens": (ValueType.ARRAY, tokens)}))


def test_real_vocabulary() -> None:
    """The Qwen2 vocabulary's size, types and some pieces are as published."""
    words = tokenizer("qwen35").vocabulary
    assert words.size == 151936
    assert words.piece(9707) == b"Hello"
    assert words.piece(151645) == b"<|im_end|>"
    assert words.is_control(151644)
    assert not words.is_control(9707)
    assert not words.unused


def test_every_byte_has_a_piece() -> None:
    """The byte tokens of a vocabulary decode to all 256 bytes in order."""
    words = Vocabulary.from_metadata(metadata_of(small()))
    assert words.decode(range(256)) == bytes(range(256))
