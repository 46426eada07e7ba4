"""Vocabularies in tiktoken's format for tests: the bytes of every token, the merge rules left to be found.

A token's rule is the pair that remains when its bytes are merged by the rules of all earlier tokens. Where
more than a pair remains, earlier tokens come in the way: such a token has no rule that its rank alone
would tell.
"""

from __future__ import annotations

from base64 import b64decode
from itertools import pairwise
from pathlib import Path

from tests.vocabularies import LETTERS


def read_ranks(path: Path) -> list[bytes]:
    """The tokens of a rank file in the order of their ids, which must begin at 0 without a gap."""
    ranks: dict[int, bytes] = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[int(rank)] = b64decode(token, validate=True)
    return [ranks[rank] for rank in range(len(ranks))]


def rules_of(tokens: list[bytes]) -> list[tuple[bytes, bytes]]:
    """The merge rules in the order of the tokens that they make; tokens without a rule are left out."""
    rank_of = {token: rank for rank, token in enumerate(tokens)}
    parts_of = (parts(token, rank_of) for token in tokens if len(token) > 1)
    return [(found[0], found[1]) for found in parts_of if len(found) == 2]


def parts(token: bytes, rank_of: dict[bytes, int]) -> list[bytes]:
    """What the bytes of a token become under the rules of the tokens before it."""
    own = rank_of[token]
    found = [token[at : at + 1] for at in range(len(token))]
    while True:
        first, place = own, 0
        for at, (left, right) in enumerate(pairwise(found)):
            rank = rank_of.get(left + right, own)
            if rank < first:
                first, place = rank, at
        if first == own:
            return found
        found[place : place + 2] = [found[place] + found[place + 1]]


def spelled(token: bytes) -> str:
    """A token in the letters that GGUF files spell bytes with."""
    return "".join(LETTERS[byte] for byte in token)
