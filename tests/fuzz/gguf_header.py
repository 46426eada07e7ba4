"""The GGUF parser: headers of real files with damage, and headers made by the format's grammar with lies.

Whatever the parser accepts, it must have read exactly: written again from what it returned, by a writer that
shares no code with it, the header has the same bytes. Whatever it refuses, it refuses with one typed error
and a short sentence. Neither may take memory out of proportion to the bytes given.
"""

from __future__ import annotations

import math
import struct
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.errors import ArtifactError, BudgetError
from engine.gguf import Header, parse_header
from engine.layout import prove_layout, refuse_unknown_contracts
from engine.metadata import ValueType
from tests.fuzz.target import Target
from tests.gguf_writer import GgufWriter
from tests.models import DATA

# Fixed costs, then: a string of no bytes takes 8 in the file, and about 64 as an object in a list that grows.
FREE_BYTES = 256 * 1024
BYTES_PER_BYTE = 16

REAL = ("tiny-qwen3-q1_0.gguf", "tiny-qwen35-pq2_0-had.gguf", "trained-qwen35-ptq1_0-had.gguf")
TELLING = [0, 1, 2, 3, 4, 8, 9, 12, 13, 31, 64, 2**16, 2**20 + 1, 2**31 - 1, 2**31, 2**32 - 1]
TELLING += [2**61, 2**63 - 1, 2**63, 2**64 - 1]
KINDS = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "u64", "i64", "f64"]
RANGES = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}
# The format's types in the order of their ids, and NumPy's names for those of arrays of numbers.
ORDER = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"]
NUMPY_KINDS = {
    "uint8": "u8", "int8": "i8", "uint16": "u16", "int16": "i16", "uint32": "u32", "int32": "i32",
    "float32": "f32", "bool": "bool", "uint64": "u64", "int64": "i64", "float64": "f64",
}  # fmt: skip

NAMES = st.text(max_size=6) | st.sampled_from(
    ["general.architecture", "general.alignment", "prism.new", "prism.hadamard.version", "a", "b"]
)


@cache
def real_header(name: str) -> bytes:
    """A real file up to its tensor data."""
    data = (DATA / "models" / name).read_bytes()
    return data[: parse_header(data, len(data)).data_start]


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, int]:
    """A header, real or made, with some bytes or numbers changed, taken out, doubled, or cut off."""
    made = draw(st.booleans())
    data = bytearray(draw(written()) if made else real_header(draw(st.sampled_from(REAL))))
    near = max(8, min(len(data), 200))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(8, near) | st.integers(0, len(data)))
        change = draw(st.sampled_from(["byte", "u32", "u64", "cut out", "double", "end"]))
        if change == "byte":
            data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
        elif change in ("u32", "u64"):
            size = 4 if change == "u32" else 8
            number = draw(st.sampled_from(TELLING)) & (2 ** (8 * size) - 1)
            data[place : place + size] = number.to_bytes(size, "little")
        elif change == "cut out":
            del data[place : place + draw(st.integers(1, 16))]
        elif change == "double":
            data[place:place] = data[place : place + draw(st.integers(1, 16))]
        else:
            del data[place:]
    return bytes(data), len(data) + draw(st.sampled_from([0, 0, 1, 2**40]))


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A file by the grammar, with one kind of lie or none: about names, values, tensors or counts."""
    lie = draw(st.sampled_from(["none", "none", "name", "value", "tensor", "count"]))
    writer = GgufWriter(draw(st.sampled_from([2, 3])), draw(st.sampled_from([32, 32, 8, 64])))
    for index in range(draw(st.integers(0, 5))):
        name = draw(NAMES) if lie == "name" else f"key.{index}"
        if lie == "value" and draw(st.booleans()):
            add_impossible_value(draw, writer, name)
        else:
            add_true_value(draw, writer, name)
    for index in range(draw(st.integers(0, 3))):
        if lie == "tensor":
            add_impossible_tensor(draw, writer)
        else:
            shape = [128 * draw(st.integers(1, 3)), draw(st.integers(1, 3))]
            writer.tensor(f"tensor.{index}", shape, draw(st.sampled_from([0, 1, 8, 41, 42, 142, 143])))
    counts = st.sampled_from([None, 0, 1, 2**16 + 1, 2**63, 2**64 - 1])
    return writer.build(draw(counts), draw(counts)) if lie == "count" else writer.build()


def add_true_value(draw: st.DrawFn, writer: GgufWriter, name: str) -> None:
    """One key with a value or an array of its type."""
    kind = draw(st.sampled_from(KINDS))
    if draw(st.booleans()):
        writer.add(name, kind, draw(values(kind)))
    else:
        writer.add(name, f"[{kind}]", draw(st.lists(values(kind), max_size=5)))


def add_impossible_value(draw: st.DrawFn, writer: GgufWriter, name: str) -> None:
    """One key with a type and bytes of which nothing need be true, or with an array of a false length."""
    some = draw(st.binary(max_size=24))
    if draw(st.booleans()):
        writer.raw(name, draw(st.integers(0, 14) | st.sampled_from(TELLING[:16])), some)
    else:
        count = draw(st.sampled_from([*TELLING, 10**5, 10**6]))
        element = draw(st.sampled_from([8, 8, 0, 4, 9, 10, 13]))
        writer.raw(name, ORDER.index("array"), struct.pack("<IQ", element, count) + some)


def add_impossible_tensor(draw: st.DrawFn, writer: GgufWriter) -> None:
    """One tensor of which nothing need be true, without data."""
    sizes = st.integers(1, 3) if draw(st.booleans()) else st.integers(1, 300) | st.sampled_from(TELLING)
    shape = draw(st.lists(sizes, min_size=1, max_size=5))
    kind = draw(st.sampled_from([0, 2, 42, 143, 999, 2**32 - 1]))
    offset = draw(st.sampled_from([None, 0, 32, 33, 2**63]))
    dims = draw(st.sampled_from([None, None, None, 0, 1, 5]))
    name = draw(NAMES | st.sampled_from(["x" * 63, "x" * 64, "é" * 32]))
    writer.tensor(name, shape, kind, b"", offset, n_dims=dims)


@cache
def values(kind: str) -> st.SearchStrategy[Any]:
    """True values of a type."""
    if kind == "string":
        return st.text(max_size=8)
    if kind == "bool":
        return st.booleans()
    if kind in ("f32", "f64"):
        return st.floats(width=32 if kind == "f32" else 64, allow_nan=False)
    bits = RANGES.get(kind) or RANGES["u" + kind[1:]]
    low = 0 if kind in RANGES else -(2 ** (bits - 1))
    return st.integers(low, low + 2**bits - 1)


CASES = damaged() | damaged() | written().map(lambda data: (data, len(data)))


def check(case: tuple[bytes, int]) -> None:
    """A header is read exactly or refused with a typed error, within memory in proportion to its bytes."""
    data, file_bytes = case
    header, message = None, ""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()  # zeros while nothing is traced
    try:
        header = parse_header(data, file_bytes)
        refuse_unknown_contracts(header.metadata)
        prove_layout(header, file_bytes, None)
    except (ArtifactError, BudgetError) as error:
        message = str(error)
    taken = tracemalloc.get_traced_memory()[1] - before
    assert taken <= FREE_BYTES + BYTES_PER_BYTE * len(data), f"{taken} bytes for a header of {len(data)}"
    assert message.isprintable()
    assert len(message) < 600
    if header is not None:
        check_limits(header)
    if header is not None and not any(map(has_nan, values_of(header))):
        again = rewritten(header)
        assert data[: len(again)] == again
        assert header.data_start == len(again) + -len(again) % header.alignment


def check_limits(header: Header) -> None:
    """What the format allows, whatever the parser does."""
    assert header.version in (2, 3)
    assert header.alignment.bit_count() == 1
    assert all(header.metadata.keys())
    assert len({tensor.name for tensor in header.tensors}) == len(header.tensors)
    for tensor in header.tensors:
        assert 0 < len(tensor.name.encode()) <= 63
        assert 1 <= len(tensor.shape) <= 4
        assert all(size > 0 for size in tensor.shape)
        assert math.prod(tensor.shape) < 2**63


def values_of(header: Header) -> list[Any]:
    """All values with their types."""
    return list(header.metadata._entries.values())


def has_nan(entry: tuple[ValueType, Any]) -> bool:
    """Whether a value has bits that its copy in Python need not keep."""
    _, value = entry
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.isnan(value).any())


def rewritten(header: Header) -> bytes:
    """The bytes that a header with this content has."""
    writer = GgufWriter(header.version)
    entries: dict[str, tuple[ValueType, Any]] = header.metadata._entries
    for key, (kind, value) in entries.items():
        if kind is not ValueType.ARRAY:
            writer.add(key, ORDER[kind], value)
        elif isinstance(value, list):
            writer.add(key, "[string]", value)
        else:
            writer.add(key, f"[{NUMPY_KINDS[value.dtype.name]}]", value.tolist())
    for tensor in header.tensors:
        type_id = struct.unpack("<I", struct.pack("<i", tensor.type_id))[0]
        writer.tensor(tensor.name, tensor.shape, type_id, b"", tensor.offset)
    return writer.header()


TARGET = Target("gguf", CASES, check, traced=True)
