"""Rewrites a PQ2_0 file as PTQ1_0: the same weights in 28 bytes a block instead of 34, metadata untouched.

Five trits make a byte: it is the smallest q for which q / 256 has their value as its ternary fraction. The
block's order is 80 weights in 16 bytes, 40 in 8, 8 in 2 bytes of four, then the scale.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from engine.gguf import Header, TensorInfo, parse_header
from engine.layout import prove_layout
from engine.tensor_types import PQ2_0, PTQ1_0

ALIGNMENT = 32


def ptq1_blocks(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """PTQ1_0 blocks [n, 28] of ternary PQ2_0 blocks [n, 34]."""
    codes = np.stack([blocks[:, 2:] >> shift & 3 for shift in (0, 2, 4, 6)], -1).reshape(-1, 128)
    assert codes.max() <= 2, "the weights are not ternary"
    stages = (codes[:, :80].reshape(-1, 5, 16), codes[:, 80:120].reshape(-1, 5, 8), _padded(codes[:, 120:]))
    return np.concatenate([*map(_packed, stages), blocks[:, :2]], -1)


def _padded(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The last eight codes as four digits of two bytes, and a fifth digit of zero."""
    digits = codes.reshape(-1, 4, 2)
    return np.concatenate((digits, np.zeros_like(digits[:, :1])), 1)


def _packed(digits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """One byte for five digits [n, 5, bytes], the first the most significant."""
    value = np.tensordot(digits.astype(np.int64), 3 ** np.arange(4, -1, -1), (1, 0))
    return ((value * 256 + 242) // 243).astype(np.uint8)


def as_ptq1_0(data: bytes) -> bytes:
    """The whole file."""
    header = parse_header(data, len(data))
    tensors = prove_layout(header, len(data), memoryview(data))
    infos, content = b"", b""
    for info in header.tensors:
        tensor = tensors[info.name]
        raw = data[tensor.start : tensor.start + tensor.nbytes]
        type_id = info.type_id
        if tensor.type is PQ2_0:
            blocks = np.frombuffer(raw, np.uint8).reshape(-1, PQ2_0.nbytes)
            raw, type_id = ptq1_blocks(blocks).tobytes(), PTQ1_0.id
        infos += _info(info, type_id, len(content))
        content += raw + bytes(-len(raw) % ALIGNMENT)
    start = data[: _infos_start(data, header)] + infos
    return start + bytes(-len(start) % ALIGNMENT) + content


def _infos_start(data: bytes, header: Header) -> int:
    """Where the tensors' descriptions begin: names in metadata come before them."""
    first = header.tensors[0]
    return data.rindex(_name(first.name), 0, header.data_start)


def _info(info: TensorInfo, type_id: int, offset: int) -> bytes:
    shape = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *info.shape)
    return _name(info.name) + shape + struct.pack("<IQ", type_id, offset)


def _name(name: str) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode()
