"""Byte-pair merging against the definition, written without cleverness: any rules, any bytes."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from random import Random

from hypothesis import strategies as st

from engine.bpe import Bpe
from tests.fuzz.target import Target
from tests.vocabularies import LETTERS, model_metadata

Rules = list[tuple[bytes, bytes]]

ALPHABETS = st.sampled_from([b"a", b"ab", b"abc", b"\x00\xff ", "é😸".encode()])
NUMBERS = st.integers(0, 255)
TEXTS = st.text(max_size=20).map(str.encode) | st.binary(max_size=30)
WORDS = st.text("etaoinshr dlu\n", max_size=40).map(str.encode)


@st.composite
def made_up(draw: st.DrawFn) -> tuple[Rules, set[bytes], bytes]:
    """Rules that build on each other, the tokens that are missing, and bytes that they like to merge.

    Places are drawn as numbers: strategies made for one case would stay in the generator's caches.
    """
    alphabet = draw(ALPHABETS)
    symbols = [bytes([byte]) for byte in alphabet]
    rules: Rules = []
    for left, right in draw(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=14)):
        rule = (symbols[left % len(symbols)], symbols[right % len(symbols)])
        if rule not in rules and len(rule[0] + rule[1]) <= 16:
            rules.append(rule)
            symbols.append(rule[0] + rule[1])
    if draw(st.booleans()):
        Random(draw(NUMBERS)).shuffle(rules)
    missing = {symbols[number % len(symbols)] for number in draw(st.lists(NUMBERS, max_size=2))}
    piece = bytes(alphabet[number % len(alphabet)] for number in draw(st.binary(max_size=40)))
    return rules, {token for token in missing if len(token) > 1}, piece


@cache
def real() -> tuple[Rules, set[bytes]]:
    """The 700 rules of a small model, in bytes; no token is missing."""
    byte_of = {letter: byte for byte, letter in enumerate(LETTERS)}
    merges = model_metadata("tiny-qwen3-q1_0.gguf").strings("tokenizer.ggml.merges")
    pairs = (merge.split(" ") for merge in merges)
    return [(unspelled(left, byte_of), unspelled(right, byte_of)) for left, right in pairs], set()


def unspelled(text: str, byte_of: dict[str, int]) -> bytes:
    """The bytes of a spelling."""
    return bytes(byte_of[letter] for letter in text)


CASES = made_up() | (TEXTS | WORDS).map(lambda piece: (*real(), piece))


def check(case: tuple[Rules, set[bytes], bytes]) -> None:
    """The tokens, first and from the cache, are those of the definition, and together they are the bytes."""
    rules, missing, piece = case
    tokens = [bytes([byte]) for byte in range(256)]
    tokens += dict.fromkeys(left + right for left, right in rules if left + right not in missing)
    ids = {token: number for number, token in enumerate(tokens)}
    spelled = {"".join(LETTERS[byte] for byte in token): number for token, number in ids.items()}
    merges = [" ".join("".join(LETTERS[byte] for byte in part) for part in rule) for rule in rules]
    expected: list[int] = []
    for symbol in definition(piece, rules):
        expected += [ids[symbol]] if symbol in ids else list(symbol)
    bpe = Bpe(spelled, merges)
    assert list(bpe.encode_piece(piece)) == expected
    assert bpe.encode_pieces([piece, b"", piece]) == expected * 2
    assert b"".join(tokens[token] for token in expected) == piece


def definition(piece: bytes, rules: Rules) -> list[bytes]:
    """Merge the pair of the first rule that applies anywhere, at its leftmost place, until none applies."""
    ranks = {rule: rank for rank, rule in enumerate(rules)}
    symbols = [piece[at : at + 1] for at in range(len(piece))]
    while True:
        found = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not found:
            return symbols
        _, at = min(found)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


TARGET = Target("bpe", CASES, check)
