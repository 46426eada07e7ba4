"""What the bytes of a quantised block mean: unsigned codes, scales, minimums and the zero point.

Every packed type is `value = (step * code - zero) * scale + minimum` with one scale (and, for some, one
minimum) a block of `group` weights, so that a dot product with integer activations needs only the codes
and the activations' block sums. Types outside this form are turned into float32 by the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine import tensor_types as types
from engine.errors import UnsupportedTypeError
from engine.tensor_types import TensorType

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class BlockFormat:
    """How one packed type stores a block.

    `codes` maps raw blocks, uint8 [..., nbytes], to codes, uint8 [..., group]; `scale` and `minimum` are
    the byte offsets of the fp16 scale and minimum in a block. `largest` is the largest code.
    """

    codes: Callable[[Bytes], Bytes]
    scale: int
    step: int
    zero: int
    largest: int
    minimum: int | None = None

    def scales(self, blocks: Bytes) -> Floats:
        """Scales of raw blocks, float32 [...]."""
        return _half(blocks, self.scale)

    def minimums(self, blocks: Bytes) -> Floats | None:
        """Minimums of raw blocks, float32 [...], or None if the type has none."""
        return None if self.minimum is None else _half(blocks, self.minimum)


def _half(blocks: Bytes, offset: int) -> Floats:
    """The little-endian fp16 at byte `offset` of every block, widened."""
    pair = np.ascontiguousarray(blocks[..., offset : offset + 2])
    return pair.view("<f2")[..., 0].astype(np.float32)


def _one_bit(blocks: Bytes) -> Bytes:
    # Q1_0: fp16 scale, then 16 bytes of 8 signs each, least significant bit first.
    return np.unpackbits(blocks[..., 2:], axis=-1, bitorder="little")


_TWO_BIT_CODES = ((np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3).astype(np.uint8)


def _two_bit(blocks: Bytes) -> Bytes:
    # Q2_0 and PQ2_0: fp16 scale, then 4 codes a byte, lowest bits first.
    packed = blocks[..., 2:]
    codes: Bytes = _TWO_BIT_CODES[packed].reshape(*packed.shape[:-1], packed.shape[-1] * 4)
    return codes


# Digit n (0..4) of a byte of trits: multiply by 3**n modulo 256, then the top of a product by 3.
_TRITS = (((np.arange(256)[:, None] * 3 ** np.arange(5) % 256) * 3) >> 8).astype(np.uint8)


def _trits(blocks: Bytes) -> Bytes:
    # PTQ1_0: 16 bytes, then 8 bytes of 5 trits, 2 bytes of 4 trits, fp16 scale. Within each stage the
    # element index is digit * bytes + byte.
    stages = ((0, 16, 5), (16, 8, 5), (24, 2, 4))
    parts = []
    for start, count, digits in stages:
        trits = _TRITS[blocks[..., start : start + count]][..., :digits]  # (..., byte, digit)
        parts.append(np.swapaxes(trits, -1, -2).reshape(*blocks.shape[:-1], count * digits))
    return np.concatenate(parts, axis=-1)


def _nibbles(blocks: Bytes, start: int) -> Bytes:
    # 16 bytes: low nibbles are weights 0..15, high nibbles are weights 16..31.
    packed = blocks[..., start : start + 16]
    return np.concatenate((packed & np.uint8(15), packed >> np.uint8(4)), axis=-1)


def _five_bit(blocks: Bytes, start: int) -> Bytes:
    # A 32-bit little-endian field holds the fifth bits, weight 0 lowest; nibbles follow.
    high = np.unpackbits(blocks[..., start : start + 4], axis=-1, bitorder="little")
    return _nibbles(blocks, start + 4) | (high << np.uint8(4))


def _signed_bytes(blocks: Bytes) -> Bytes:
    # Q8_0: fp16 scale, then 32 signed bytes; flipping the top bit adds the offset of 128.
    return blocks[..., 2:] ^ np.uint8(0x80)


BLOCK_FORMATS: dict[str, BlockFormat] = {
    types.Q1_0.name: BlockFormat(_one_bit, scale=0, step=2, zero=1, largest=1),
    types.Q2_0.name: BlockFormat(_two_bit, scale=0, step=1, zero=1, largest=3),
    types.PQ2_0.name: BlockFormat(_two_bit, scale=0, step=1, zero=1, largest=3),
    types.PTQ1_0.name: BlockFormat(_trits, scale=26, step=1, zero=1, largest=2),
    types.Q4_0.name: BlockFormat(lambda b: _nibbles(b, 2), scale=0, step=1, zero=8, largest=15),
    types.Q4_1.name: BlockFormat(lambda b: _nibbles(b, 4), scale=0, step=1, zero=0, largest=15, minimum=2),
    types.Q5_0.name: BlockFormat(lambda b: _five_bit(b, 2), scale=0, step=1, zero=16, largest=31),
    types.Q5_1.name: BlockFormat(lambda b: _five_bit(b, 4), scale=0, step=1, zero=0, largest=31, minimum=2),
    types.Q8_0.name: BlockFormat(_signed_bytes, scale=0, step=1, zero=128, largest=255),
}


def dequantise(tensor_type: TensorType, raw: Bytes) -> Floats:
    """Weights of raw rows, uint8 [rows, row bytes], as float32 [rows, inputs]; one rounding an operation."""
    if tensor_type == types.F32:
        return raw.view("<f4").astype(np.float32, copy=False)
    if tensor_type == types.F16:
        return raw.view("<f2").astype(np.float32)
    if tensor_type == types.BF16:
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    block_format = BLOCK_FORMATS.get(tensor_type.name)
    if block_format is None:
        return _dequantise_elsewhere(tensor_type, raw)
    blocks = raw.reshape(raw.shape[0], -1, tensor_type.nbytes)
    steps = block_format.codes(blocks).astype(np.float32) * block_format.step - block_format.zero
    values = steps * block_format.scales(blocks)[..., None]
    minimums = block_format.minimums(blocks)
    if minimums is not None:
        values += minimums[..., None]
    return values.reshape(raw.shape[0], -1)


def _dequantise_elsewhere(tensor_type: TensorType, raw: Bytes) -> Floats:
    # Imported here: the package takes a quarter of a second to import and most files do not need it.
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    try:
        values: Floats = dequantize(raw, GGMLQuantizationType(tensor_type.id))
    except (NotImplementedError, ValueError) as error:
        raise UnsupportedTypeError(
            f"tensor type {tensor_type.name} (id {tensor_type.id}) cannot be read"
        ) from error
    return np.ascontiguousarray(values, dtype=np.float32)
