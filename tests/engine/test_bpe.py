from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.bpe import Bpe
from engine.errors import InvalidInputError, MetadataError
from engine.metadata import Metadata, ValueType
from engine.vocabulary import Vocabulary
from tests.gguf_writer import GgufWriter
from tests.vocabularies import LETTERS, MERGES, metadata_of, small


def bpe(merges: Sequence[str] = MERGES) -> Bpe:
    """A merger over byte tokens and one token a merge, through a real file."""
    metadata = metadata_of(small(merges))
    return Bpe.from_metadata(metadata, Vocabulary.from_metadata(metadata))


def slow_merge(symbols: list[str], merges: Sequence[str]) -> list[str]:
    """The definition, without any cleverness: the lowest rank first, the leftmost of equals."""
    while True:
        pairs = [f"{left} {right}" for left, right in pairwise(symbols)]
        ranked = [(merges.index(pair), at) for at, pair in enumerate(pairs) if pair in merges]
        if not ranked:
            return symbols
        _, at = min(ranked)
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


def test_merges_in_rank_order() -> None:
    """Known words become the tokens of their last merges, other bytes their own."""
    words = bpe()
    token = {merge.replace(" ", ""): len(LETTERS) + rank for rank, merge in enumerate(MERGES)}
    assert words.encode_piece(b"hello") == (token["hello"],)
    assert words.encode_piece(b" world") == (token["Ġworld"],)
    assert words.encode_piece(b"\n\n\n") == (token["ĊĊ"], ord("\n"))
    assert words.encode_piece("hé".encode()) == (ord("h"), 0xC3, 0xA9)
    assert words.encode_piece(b"") == ()


def test_lower_rank_wins_over_the_left() -> None:
    """In "abc" the pair with the lower rank merges first, although another one stands left of it."""
    assert bpe(["b c", "a b"]).encode_piece(b"abc") == (ord("a"), 256)
    assert bpe(["a b", "b c"]).encode_piece(b"abc") == (256, ord("c"))


def test_leftmost_of_equal_ranks() -> None:
    """Three equal letters merge from the left."""
    assert bpe(["a a"]).encode_piece(b"aaa") == (256, ord("a"))


MERGE_TABLES = st.lists(
    st.sampled_from(["a b", "b a", "a a", "b b", "ab a", "aa b", "ab ab", "b ab", "aab b", "aa aa", "c a"]),
    unique=True,
)


@given(merges=MERGE_TABLES, piece=st.text("abc", max_size=30))
def test_equals_the_definition(merges: list[str], piece: str) -> None:
    """The heap gives the same tokens as merging by the definition, for any rules and text."""
    tokens = {symbol: index for index, symbol in enumerate("abc")}
    for merge in merges:
        tokens.setdefault(merge.replace(" ", ""), len(tokens))
    expected = tuple(tokens[symbol] for symbol in slow_merge(list(piece), merges))
    assert Bpe(tokens, merges).encode_piece(piece.encode()) == expected


def test_merged_symbol_that_is_no_token() -> None:
    """Where a merge gives no normal token, its bytes stand for themselves."""
    tokens = {"a": 0, "b": 1}
    assert Bpe(tokens, ["a b"]).encode_piece(b"abb") == (0, 1, 1)


def test_pieces_stay_apart() -> None:
    """No merge crosses a boundary that the caller set, and empty pieces add nothing."""
    words = bpe()
    token = {merge.replace(" ", ""): len(LETTERS) + rank for rank, merge in enumerate(MERGES)}
    assert words.encode_pieces([b"hello"]) == [token["hello"]]
    assert words.encode_pieces([b"hel", b"", b"lo"]) == [token["he"], *b"llo"]
    assert words.encode_pieces(iter([b"\n", b"\n\n"])) == [10, token["ĊĊ"]]
    assert words.encode_pieces([]) == []


def test_a_piece_is_not_looked_into() -> None:
    """Neither word boundaries nor special spellings are found in a piece: merges alone decide."""
    assert bpe(["a Ġ", "aĠ b"]).encode_piece(b"a b") == (257,)
    assert bpe().encode_piece(b"<|im_end|>") == tuple(b"<|im_end|>")


@given(st.lists(st.binary(max_size=20)))
def test_any_bytes_come_back(pieces: list[bytes]) -> None:
    """Pieces need not be UTF-8: the bytes of the ids are the bytes of the pieces."""
    metadata = metadata_of(small())
    vocabulary = Vocabulary.from_metadata(metadata)
    assert vocabulary.decode(Bpe.from_metadata(metadata).encode_pieces(pieces)) == b"".join(pieces)


def test_the_whole_vocabulary_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building the input side alone checks every token, and decodes none."""
    spellings = [*LETTERS, "wrong €"]
    writer = GgufWriter().add("tokenizer.ggml.tokens", "[string]", spellings)
    with pytest.raises(MetadataError, match=r"tokens\[256\] has a character"):
        Bpe.from_metadata(metadata_of(writer.add("tokenizer.ggml.merges", "[string]", [])))

    def piece(*_: object) -> bytes:
        raise AssertionError("a token was decoded")

    monkeypatch.setattr(Vocabulary, "piece", piece)
    assert Bpe.from_metadata(metadata_of(small())).encode_piece(b"a") == (97,)


def test_missing_byte() -> None:
    """A byte without a token is refused instead of dropped, and the message shows only the byte."""
    with pytest.raises(InvalidInputError, match="needs the byte 0x62, which this vocabulary lacks"):
        Bpe({"a": 0}, []).encode_piece(b"aab")


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (["a b", "ab"], r"merges\[1\] is not two symbols"),
        ([" ab"], r"merges\[0\] is not two symbols"),
        (["ab "], r"merges\[0\] is not two symbols"),
        (["a b c"], r"merges\[0\] is not two symbols"),
        ([""], r"merges\[0\] is not two symbols"),
        (["a b", "b a", "a b"], "lists a pair twice"),
    ],
)
def test_bad_rules(merges: list[str], message: str) -> None:
    """Merge rules that do not name exactly two symbols, or repeat, are refused."""
    with pytest.raises(MetadataError, match=message):
        bpe(merges)


def test_piece_bound() -> None:
    """64 KiB in one piece are admitted, one byte more is not."""
    words = bpe()
    assert len(words.encode_piece(b"x" * 65536)) == 65536
    with pytest.raises(InvalidInputError, match="has 65537 bytes"):
        words.encode_piece(b"x" * 65537)


def test_memory_is_that_of_the_largest_piece() -> None:
    """Eight pieces need little more memory on the way than one; only their ids add up."""
    words = bpe()

    def peak(count: int) -> int:
        pieces = (bytes([number]) + b"he" * 4000 for number in range(count))
        tracemalloc.start()
        try:
            assert len(words.encode_pieces(pieces)) == 4001 * count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(8) < 2 * peak(1)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        (["a b"] * 1_000_001, "has 1000001 entries; at most 1000000"),
        (["a" * (1 << 20)] * 64 + ["b"], "holds more than 67108864 characters"),
    ],
    ids=["entries", "characters"],
)
def test_bounds_of_the_rules(merges: list[str], message: str) -> None:
    """A million rules and 64 MiB of them are the most."""
    metadata = Metadata({"tokenizer.ggml.merges": (ValueType.ARRAY, merges)})
    with pytest.raises(MetadataError, match=message):
        Bpe.from_metadata(metadata, Vocabulary(["a"], [1]))


def test_long_piece_is_near_linear() -> None:
    """A piece of 64 KiB that merges all the way up takes about as long per byte as a short one."""
    doubling = ["a a", "aa aa", "aaaa aaaa", "aaaaaaaa aaaaaaaa"]
    words = bpe(doubling)

    def seconds(size: int) -> float:
        start = time.perf_counter()
        assert words.encode_piece(b"a" * size) == (259,) * (size // 16)
        return time.perf_counter() - start

    small_piece = min(seconds(4096) for _ in range(5))
    assert min(seconds(65536) for _ in range(3)) < 16 * small_piece * 8


def test_cache_is_bounded() -> None:
    """More different pieces than the cache holds still encode rightly."""
    words = bpe()
    for number in range(40_000):
        words.encode_piece(f"x{number}".encode())
    assert words.encode_piece(b"x7") == (ord("x"), ord("7"))
    assert len(words._cache) <= 32_768
