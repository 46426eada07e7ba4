"""Decodes one quantised block a weight at a time, written from the byte layouts alone.

`decode_block(kind, block)` gives unsigned codes, the scale and the minimum; a weight is
(step code - zero) scale + minimum with `STEP_ZERO[kind]`. Slow on purpose: it is an oracle.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from tests.gguf_writer import PQ2_0, PTQ1_0, Q1_0, Q2_0, Q4_0, Q4_1, Q8_0

Q5_0, Q5_1 = 6, 7

GEOMETRY = {  # weights and bytes a block
    Q1_0: (128, 18), Q2_0: (64, 18), PQ2_0: (128, 34), PTQ1_0: (128, 28), Q4_0: (32, 18),
    Q4_1: (32, 20), Q5_0: (32, 22), Q5_1: (32, 24), Q8_0: (32, 34),
}  # fmt: skip
STEP_ZERO = {
    Q1_0: (2, 1), Q2_0: (1, 1), PQ2_0: (1, 1), PTQ1_0: (1, 1), Q4_0: (1, 8), Q4_1: (1, 0), Q5_0: (1, 16),
    Q5_1: (1, 0), Q8_0: (1, 128),
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Codes of all weights, scale, and minimum if the type has one."""

    codes: list[int]
    scale: float
    minimum: float | None = None

    def values(self, kind: int) -> list[np.float32]:
        """The weights, rounded after each operation."""
        step, zero = STEP_ZERO[kind]
        products = [np.float32(step * code - zero) * np.float32(self.scale) for code in self.codes]
        if self.minimum is None:
            return products
        return [product + np.float32(self.minimum) for product in products]


def half(block: bytes, offset: int) -> float:
    """The little-endian fp16 at a byte offset."""
    value: float = struct.unpack_from("<e", block, offset)[0]
    return value


def decode_block(kind: int, block: bytes) -> Block:
    """One block of any packed type."""
    weights, size = GEOMETRY[kind]
    assert len(block) == size
    if kind == Q1_0:  # a bit a weight, lowest first
        return Block([block[2 + j // 8] >> j % 8 & 1 for j in range(weights)], half(block, 0))
    if kind in (Q2_0, PQ2_0):  # four weights a byte, lowest first
        return Block([block[2 + j // 4] >> 2 * (j % 4) & 3 for j in range(weights)], half(block, 0))
    if kind == PTQ1_0:
        return Block([trit_of(block, j) for j in range(weights)], half(block, 26))
    if kind == Q8_0:
        return Block([value + 128 for value in struct.unpack("32b", block[2:])], half(block, 0))
    has_minimum = kind in (Q4_1, Q5_1)
    start = 4 if has_minimum else 2
    fifth = 0
    if kind in (Q5_0, Q5_1):
        fifth = struct.unpack_from("<I", block, start)[0]
        start += 4
    codes = []
    for j in range(32):  # low nibbles are weights 0 to 15, high nibbles 16 to 31
        nibble = block[start + j % 16] >> (4 if j >= 16 else 0) & 15
        codes.append(nibble | (fifth >> j & 1) << 4)
    return Block(codes, half(block, 0), half(block, 2) if has_minimum else None)


def trit_of(block: bytes, j: int) -> int:
    """Weight j of a PTQ1_0 block: digit n of a byte is the top of 3 (byte 3**n mod 256)."""
    if j < 80:
        n, byte = j // 16, block[j % 16]
    elif j < 120:
        n, byte = (j - 80) // 8, block[16 + (j - 80) % 8]
    else:
        n, byte = (j - 120) // 2, block[24 + (j - 120) % 2]
    return (byte * int(3**n) % 256) * 3 // 256
