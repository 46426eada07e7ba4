"""Writes a GGUF file of any size in one pass: header first, then tensor after tensor, hashed on the way.

Nothing but the chunk at hand is in memory. It does not know what the keys and tensors mean.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tensors import TensorPlan

Key = tuple[str, str, Any]  # (name, type, value); types as below, and `[TYPE]` for arrays of them
Fill = Callable[[TensorPlan], Iterator[bytes]]

ALIGNMENT = 32
TYPE_IDS = {"u32": 4, "i32": 5, "f32": 6, "bool": 7, "string": 8, "array": 9}
FORMATS = {"u32": "<I", "i32": "<i", "f32": "<f", "bool": "<?"}


def write_gguf(
    path: Path, keys: Sequence[Key], plans: Sequence[TensorPlan], fill: Fill, wrote: Callable[[int], None]
) -> tuple[int, str]:
    """Length and SHA-256 of the new file; `wrote` is told of the bytes as they are written."""
    digest, length = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in _chunks(keys, plans, fill):
            file.write(chunk)
            digest.update(chunk)
            length += len(chunk)
            wrote(len(chunk))
    return length, digest.hexdigest()


def _chunks(keys: Sequence[Key], plans: Sequence[TensorPlan], fill: Fill) -> Iterator[bytes]:
    head = header(keys, plans)
    yield head + bytes(-len(head) % ALIGNMENT)
    for plan in plans:
        written = 0
        for chunk in fill(plan):
            yield chunk
            written += len(chunk)
        assert written == plan.nbytes, plan.name
        yield bytes(-written % ALIGNMENT)


def header(keys: Sequence[Key], plans: Sequence[TensorPlan]) -> bytes:
    """Everything before the padding in front of the tensor data."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(plans), len(keys))]
    for name, kind, value in keys:
        type_id = TYPE_IDS["array" if kind.startswith("[") else kind]
        parts += [_string(name), struct.pack("<I", type_id), *_value(kind, value)]
    offset = 0
    for plan in plans:
        count = len(plan.shape)
        parts.append(_string(plan.name))
        parts.append(struct.pack(f"<I{count}QIQ", count, *plan.shape, plan.type.id, offset))
        offset += plan.nbytes + -plan.nbytes % ALIGNMENT
    return b"".join(parts)


def _value(kind: str, value: Any) -> Iterable[bytes]:
    if kind == "string":
        return [_string(value)]
    if kind in FORMATS:
        return [struct.pack(FORMATS[kind], value)]
    element = kind[1:-1]
    head = struct.pack("<IQ", TYPE_IDS[element], len(value))
    if element == "string":
        return [head, *map(_string, value)]
    return [head, np.array(value, np.dtype(element[0] + "4")).astype(f"<{element[0]}4").tobytes()]


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw
