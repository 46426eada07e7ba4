"""Byte-pair merging: one pre-tokenized piece of text in, token ids out.

The pair with the lowest rank merges first, the leftmost of equal ones; a heap over linked symbols makes
that near linear in the piece's length. It does not find piece boundaries or special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Self

from engine.errors import InvalidInputError, MetadataError
from engine.metadata import Metadata
from engine.pretokenizer import check_piece
from engine.vocabulary import BYTE_ALPHABET, Vocabulary

MERGES = "tokenizer.ggml.merges"

MAX_MERGES = 1_000_000
MAX_MERGE_BYTES = 64 << 20
_POSITION_BITS = 16  # a position within a piece fits, by the bound on its length
_NO_PAIR = -1

_CACHED_PIECES = 32_768
_CACHED_PIECE_BYTES = 64


class Bpe:
    """Ranked merges over a vocabulary. Safe to share between threads; keeps a bounded cache of pieces."""

    def __init__(self, tokens: dict[str, int], merges: list[str]) -> None:
        self._tokens = tokens
        self._ranks = dict(zip(merges, range(len(merges)), strict=True))  # "left right" → rank
        self._cache: dict[bytes, tuple[int, ...]] = {}

    @classmethod
    def from_metadata(cls, metadata: Metadata, vocabulary: Vocabulary | None = None) -> Self:
        """Read and check the merge rules, and the whole vocabulary unless it is given as checked already."""
        vocabulary = vocabulary or Vocabulary.from_metadata(metadata)
        merges = metadata.strings(MERGES)
        if len(merges) > MAX_MERGES:
            raise MetadataError(f"{MERGES} has {len(merges)} entries; at most {MAX_MERGES} are allowed")
        if sum(map(len, merges)) > MAX_MERGE_BYTES:
            raise MetadataError(f"{MERGES} holds more than {MAX_MERGE_BYTES} characters")
        for rank, merge in enumerate(merges):
            left, space, right = merge.partition(" ")
            if not (left and space and right) or " " in right:
                raise MetadataError(f"{MERGES}[{rank}] is not two symbols with one space between them")
        bpe = cls(vocabulary.normal(), merges)
        if len(bpe._ranks) != len(merges):
            raise MetadataError(f"{MERGES} lists a pair twice; its rank would be ambiguous")
        return bpe

    def encode_pieces(self, pieces: Iterable[bytes]) -> list[int]:
        """The token ids of all pieces, each at most 64 KiB; no merge crosses from one into the next."""
        ids: list[int] = []
        for piece in pieces:
            ids.extend(self.encode_piece(piece))
        return ids

    def encode_piece(self, piece: bytes) -> tuple[int, ...]:
        """The token ids of one piece of at most 64 KiB, usually UTF-8."""
        ids = self._cache.get(piece)
        if ids is None:
            ids = self._encode(piece)
            if len(piece) <= _CACHED_PIECE_BYTES:
                if len(self._cache) >= _CACHED_PIECES:
                    self._cache.clear()
                self._cache[piece] = ids
        return ids

    def _encode(self, piece: bytes) -> tuple[int, ...]:
        check_piece(len(piece))
        spelled = piece.decode("latin-1").translate(BYTE_ALPHABET)
        ids: list[int] = []
        for symbol in self._merge(list(spelled)):
            if symbol in self._tokens:
                ids.append(self._tokens[symbol])
            else:  # a merge whose result is no normal token: its bytes stand for themselves
                ids.extend(map(self._byte_id, symbol))
        return tuple(ids)

    def _byte_id(self, character: str) -> int:
        if character not in self._tokens:
            byte = BYTE_ALPHABET.index(character)
            raise InvalidInputError(f"the text needs the byte 0x{byte:02x}, which this vocabulary lacks")
        return self._tokens[character]

    def _merge(self, symbols: list[str]) -> list[str]:
        """Merge adjacent symbols until no rule applies.

        A heap entry is `rank << 16 | position of the left symbol`. It is stale, and skipped, unless the
        pair that now begins at that position has that rank.
        """
        count = len(symbols)
        rank_of = self._ranks.get
        after = list(range(1, count + 1))
        before = list(range(-1, count - 1))
        ranks = [rank_of(f"{left} {right}", _NO_PAIR) for left, right in pairwise(symbols)] + [_NO_PAIR]
        heap = [rank << _POSITION_BITS | position for position, rank in enumerate(ranks) if rank != _NO_PAIR]
        heapify(heap)
        while heap:
            entry = heappop(heap)
            left = entry & ((1 << _POSITION_BITS) - 1)
            if ranks[left] != entry >> _POSITION_BITS:
                continue
            right = after[left]
            symbols[left] += symbols[right]
            ranks[right] = _NO_PAIR
            after[left] = after[right]
            if after[left] < count:
                before[after[left]] = left
            for position in (before[left], left):
                if position < 0:
                    continue
                following = after[position]
                rank = _NO_PAIR
                if following < count:
                    rank = rank_of(f"{symbols[position]} {symbols[following]}", _NO_PAIR)
                ranks[position] = rank
                if rank != _NO_PAIR:
                    heappush(heap, rank << _POSITION_BITS | position)
        return _linked(symbols, after)


def _linked(symbols: list[str], after: list[int]) -> list[str]:
    """The symbols that are still in the chain, from the first on."""
    chain: list[str] = []
    position = 0
    while position < len(symbols):
        chain.append(symbols[position])
        position = after[position]
    return chain
