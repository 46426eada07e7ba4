"""Random weights in the bytes of each storage type, as endless as a tensor needs them.

Values are about 1 / sqrt(inputs), so that activations and logits keep the size that they have in a trained
model. One tile a type and input width is drawn and repeated: what is measured does not depend on the
values, and drawing gigabytes would take longer than all measurements. Ternary types get no code 3, like the
released files.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks.tensors import TensorPlan
from engine.tensor_types import BF16, PQ2_0, PTQ1_0, Q1_0, Q2_0, Q4_1, Q8_0, TensorType

Blocks = NDArray[np.uint8]  # (blocks, bytes a block)
Draw = Callable[[np.random.Generator, int, float], Blocks]  # (generator, blocks, size of the values)

TILE_BLOCKS = 65_521  # a prime number, so that no row of a matrix equals the one before


def fill(plan: TensorPlan) -> Iterator[bytes]:
    """The bytes of a tensor in chunks; the same every time."""
    seed = zlib.crc32(plan.name.encode())
    if plan.bounds is not None:
        yield np.random.default_rng(seed).uniform(*plan.bounds, plan.elements).astype("<f4").tobytes()
        return
    tile = _tile(plan.type, plan.shape[0])
    start = seed % TILE_BLOCKS * plan.type.nbytes  # tensors of a shape differ
    left = plan.nbytes
    while left:
        chunk = tile[start : start + left]
        yield bytes(chunk)
        left -= len(chunk)
        start = 0


@cache
def _tile(kind: TensorType, inputs: int) -> memoryview:
    generator = np.random.default_rng(kind.id * 1_000_003 + inputs)
    return memoryview(DRAWS[kind](generator, TILE_BLOCKS, inputs**-0.5).tobytes())


def _scales(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
    values = generator.uniform(0.75, 1.25, blocks) * size
    return values.astype("<f2").view(np.uint8).reshape(blocks, 2)


def _signs(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
    """Scale, then 128 bits."""
    bits = generator.integers(0, 256, (blocks, 16), np.uint8)
    return np.hstack((_scales(generator, blocks, size), bits))


def _two_bits(group: int) -> Draw:
    def draw(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
        """Scale, then two-bit codes 0 to 2 that stand for -1 to 1, the first in the lowest bits."""
        codes = generator.integers(0, 3, (4, blocks, group // 4), np.uint8)
        packed = codes[0] | codes[1] << 2 | codes[2] << 4 | codes[3] << 6
        return np.hstack((_scales(generator, blocks, size * 1.5**0.5), packed))

    return draw


def _trits(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
    """24 bytes of five trits, two of four, then the scale; a byte is its number in base 3 times 256/243."""
    numbers = np.hstack(
        (generator.integers(0, 243, (blocks, 24)), 3 * generator.integers(0, 81, (blocks, 2)))
    )
    packed = ((numbers * 256 + 242) // 243).astype(np.uint8)
    return np.hstack((packed, _scales(generator, blocks, size * 1.5**0.5)))


def _nibbles(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
    """Scale, the minimum that centres the codes, then 32 four-bit codes."""
    scales = _scales(generator, blocks, size / 4.6)
    lowest = (scales.view("<f2") * np.float16(-7.5)).view(np.uint8)
    return np.hstack((scales, lowest, generator.integers(0, 256, (blocks, 16), np.uint8)))


def _bytes(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
    """Scale, then 32 signed bytes."""
    codes = generator.integers(-127, 128, (blocks, 32), np.int8).view(np.uint8)
    return np.hstack((_scales(generator, blocks, size / 73), codes))


def _bfloats(generator: np.random.Generator, blocks: int, size: float) -> Blocks:
    """The upper halves of float32 values."""
    values = generator.standard_normal(blocks).astype("<f4") * np.float32(size)
    return values.view(np.uint8).reshape(blocks, 4)[:, 2:]


DRAWS: dict[TensorType, Draw] = {
    Q1_0: _signs,
    Q2_0: _two_bits(64),
    PQ2_0: _two_bits(128),
    PTQ1_0: _trits,
    Q4_1: _nibbles,
    Q8_0: _bytes,
    BF16: _bfloats,
}
