"""Writes small GGUF files for tests, true ones and every kind of lie.

    data = (
        GgufWriter()
        .add("general.architecture", "string", "qwen3")
        .add("qwen3.block_count", "u32", 2)
        .add("tokenizer.ggml.tokens", "[string]", ["a", b"\\xff"])
        .tensor("output_norm.weight", (256,), F32, floats.tobytes())
        .build()
    )

Value types: u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool string, and `[TYPE]` for arrays (`[[u8]]` nests).
Keys, strings and names may be `bytes`, to write bad UTF-8. Shapes are in file order: shape[0] is the
number of inputs. Nothing is checked: whatever is asked for is written. Written from the format's
description alone; it shares no code with the parser under test.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any, Self

TYPE_IDS = {
    "u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7,
    "string": 8, "array": 9, "u64": 10, "i64": 11, "f64": 12,
}  # fmt: skip
FORMATS = {
    "u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "B",
    "u64": "Q", "i64": "q", "f64": "d",
}  # fmt: skip

F32, F16, Q4_0, Q4_1, Q8_0, BF16, Q1_0, Q2_0, PQ2_0, PTQ1_0 = 0, 1, 2, 3, 8, 30, 41, 42, 142, 143
BLOCKS = {
    F32: (1, 4), F16: (1, 2), Q4_0: (32, 18), Q4_1: (32, 20), Q8_0: (32, 34), BF16: (1, 2),
    Q1_0: (128, 18), Q2_0: (64, 18), PQ2_0: (128, 34), PTQ1_0: (128, 28),
}  # fmt: skip  # type id: (weights, bytes) a block; id 42 here in its group-64 form


def tensor_bytes(type_id: int, shape: Sequence[int], group: int | None = None) -> int:
    """Bytes of a tensor; `group=128` gives the legacy form of id 42."""
    weights, size = (128, 34) if (type_id, group) == (Q2_0, 128) else BLOCKS[type_id]
    return prod(shape) // weights * size


def ternary_blocks(
    count: int, group: int = 64, *, scale_first: bool = True, scale: float = 0.5, seed: int = 1
) -> bytes:
    """`count` blocks of random two-bit codes 0, 1 or 2 (never 3) with one fp16 scale each.

    `group` is 64 or 128 weights a block; `scale_first=False` gives the order codes, then scale.
    """
    draw = random.Random(seed)
    packed_scale = struct.pack("<e", scale)
    blocks = []
    for _ in range(count):
        codes = bytes(sum(draw.randrange(3) << shift for shift in (0, 2, 4, 6)) for _ in range(group // 4))
        blocks.append(packed_scale + codes if scale_first else codes + packed_scale)
    return b"".join(blocks)


class GgufWriter:
    """Collects keys and tensors in order and builds the bytes of a file; `add` and `tensor` chain."""

    def __init__(
        self, version: int = 3, alignment: int = 32, *, magic: bytes = b"GGUF", big_endian: bool = False
    ) -> None:
        self.version = version
        self.alignment = alignment
        self.magic = magic
        self.order = ">" if big_endian else "<"
        self.keys: list[bytes] = []
        self.infos: list[tuple[bytes, int | None, bytes]] = []
        if alignment != 32:
            self.add("general.alignment", "u32", alignment)

    def pack(self, code: str, *values: Any) -> bytes:
        """`struct.pack` in the file's byte order."""
        return struct.pack(self.order + code, *values)

    def string(self, text: str | bytes, length: int | None = None) -> bytes:
        """A GGUF string; `length` lies about its size."""
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return self.pack("Q", len(raw) if length is None else length) + raw

    def payload(self, kind: str, value: Any) -> bytes:
        """The bytes of one value, without its type id."""
        if kind == "string":
            return self.string(value)
        if not kind.startswith("["):
            return self.pack(FORMATS[kind], int(value) if kind == "bool" else value)
        element = kind[1:-1]
        items: list[Any] = list(value)
        element_id = TYPE_IDS["array" if element.startswith("[") else element]
        head = self.pack("IQ", element_id, len(items))
        if element in FORMATS:
            return head + self.pack(f"{len(items)}{FORMATS[element]}", *items)
        return head + b"".join(self.payload(element, item) for item in items)

    def add(self, key: str | bytes, kind: str, value: Any) -> Self:
        """One key with a value of the named type."""
        type_id = TYPE_IDS["array" if kind.startswith("[") else kind]
        return self.raw(key, type_id, self.payload(kind, value))

    def raw(self, key: str | bytes, type_id: int, payload: bytes) -> Self:
        """One key with any type id and any bytes after it."""
        self.keys.append(self.string(key) + self.pack("I", type_id) + payload)
        return self

    def raw_key(self, record: bytes) -> Self:
        """A whole key record as given, counted as one."""
        self.keys.append(record)
        return self

    def tensor(
        self,
        name: str | bytes,
        shape: Iterable[int],
        type_id: int,
        data: bytes | None = None,
        offset: int | None = None,
        *,
        n_dims: int | None = None,
        group: int | None = None,
    ) -> Self:
        """One tensor; without `data` zeros of the right size, without `offset` the right offset.

        `n_dims` lies about the number of dimensions; `group=128` sizes the zeros of id 42 as legacy.
        """
        dims = tuple(shape)
        if data is None:
            data = bytes(tensor_bytes(type_id, dims, group))
        head = self.string(name) + self.pack("I", len(dims) if n_dims is None else n_dims)
        head += b"".join(self.pack("Q", dim & (2**64 - 1)) for dim in dims) + self.pack("I", type_id)
        self.infos.append((head, offset, data))
        return self

    def padding(self, length: int) -> bytes:
        """Zeros that bring `length` to the next multiple of the writer's alignment."""
        return bytes(-length % self.alignment)

    def header(self, n_tensors: int | None = None, n_kv: int | None = None) -> bytes:
        """Everything before the padding of the data section; the counts may lie."""
        offset, infos = 0, []
        for head, declared, data in self.infos:
            infos.append(head + self.pack("Q", offset if declared is None else declared))
            offset += len(data) + len(self.padding(len(data)))
        counts = (
            len(self.infos) if n_tensors is None else n_tensors,
            len(self.keys) if n_kv is None else n_kv,
        )
        start = (
            self.magic + self.pack("I", self.version) + self.pack("QQ", *(c & (2**64 - 1) for c in counts))
        )
        return start + b"".join(self.keys) + b"".join(infos)

    def build(self, n_tensors: int | None = None, n_kv: int | None = None, *, pad_last: bool = True) -> bytes:
        """The whole file; `pad_last=False` leaves out the padding after the last tensor."""
        header = self.header(n_tensors, n_kv)
        parts = [header]
        if self.infos:
            parts.append(self.padding(len(header)))
        for index, (_, _, data) in enumerate(self.infos):
            parts.append(data)
            if pad_last or index + 1 < len(self.infos):
                parts.append(self.padding(len(data)))
        return b"".join(parts)

    def write(self, path: Path) -> Path:
        """Writes `build()` to `path` and returns it."""
        path.write_bytes(self.build())
        return path
