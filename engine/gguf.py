"""Bounded parser for the header of a GGUF file, versions 2 and 3.

Every count, length and type is compared with an absolute limit and with the bytes that remain before
anything is read or allocated by it; sizes are Python integers and cannot wrap. The work is linear in
the header's bytes. The parser says what the header declares; whether tensors of these types lie where
the header puts them is proved in `layout`. Source of the format: ggml's specification of GGUF.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import BudgetError, MalformedGgufError, NotGgufError, TruncatedError
from engine.metadata import Metadata, Value, ValueType, shown

__all__ = ["Header", "Metadata", "TensorInfo", "Value", "parse_header"]

MAX_HEADER_BYTES = 256 * 1024 * 1024
MAX_KEYS = 65_536
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 65_535
MAX_STRING_BYTES = 1024 * 1024
MAX_ARRAY_STRINGS = 1_000_000
MAX_STRINGS = 4_000_000  # in all arrays together: a short string takes eight times its bytes in memory
MAX_TENSOR_NAME_BYTES = 63
MIN_KEY_BYTES = 8 + 4 + 1  # the length of an empty name, type, value
MIN_TENSOR_BYTES = 8 + 4 + 4 + 8  # the length of an empty name, dimensions, type, offset
MAX_DIMENSIONS = 4
MAX_TENSOR_ELEMENTS = 2**63 - 1
MAX_ALIGNMENT = 65_536
DEFAULT_ALIGNMENT = 32

SCALARS: dict[ValueType, struct.Struct] = {
    ValueType.UINT8: struct.Struct("<B"),
    ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"),
    ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: struct.Struct("<I"),
    ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"),
    ValueType.BOOL: struct.Struct("<B"),
    ValueType.UINT64: struct.Struct("<Q"),
    ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
}
U64 = SCALARS[ValueType.UINT64]


@dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header declares it. `shape[0]` is the number of inputs (the fastest axis)."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int  # bytes from the start of the data section


@dataclass(frozen=True)
class Header:
    """Everything before the data section, which starts at byte `data_start` of the file."""

    version: int
    metadata: Metadata
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_start: int


def parse_header(data: bytes | bytearray | memoryview, file_bytes: int) -> Header:
    """Reads the header at the start of `data`, the whole file or the first bytes of it.

    `file_bytes` is the length of the whole file. Raises `NotGgufError`, `TruncatedError` (the file ends
    inside the header), `BudgetError` (the header goes on after the bytes given, or after 256 MiB) or
    `MalformedGgufError`.
    """
    reader = _Reader(data, file_bytes)
    version = _read_version(reader)
    n_tensors = reader.count("tensor count", MAX_TENSORS)
    n_keys = reader.count("key count", MAX_KEYS)
    reader.expect(n_keys * MIN_KEY_BYTES + n_tensors * MIN_TENSOR_BYTES, "the list of keys and tensors")
    metadata, alignment = _read_metadata(reader, n_keys)
    tensors = _read_tensors(reader, n_tensors)
    data_start = (reader.position + alignment - 1) // alignment * alignment
    return Header(version, metadata, tensors, alignment, data_start)


class _Reader:
    """A cursor over the header's bytes that checks every length before it is used."""

    def __init__(self, data: bytes | bytearray | memoryview, file_bytes: int) -> None:
        self.data = memoryview(data)
        self.file_bytes = file_bytes
        self.end = min(len(self.data), file_bytes, MAX_HEADER_BYTES)
        self.position = 0
        self.strings_left = MAX_STRINGS

    def need(self, nbytes: int, what: str) -> int:
        """Moves over `nbytes` and returns where they start; says why if they are not there."""
        start = self.position
        if start + nbytes > self.end:
            if start + nbytes > self.file_bytes:
                raise TruncatedError(
                    f"the file ends inside its header: {what} at byte {start} takes {nbytes} bytes, "
                    f"but the file has only {self.file_bytes}; was the download complete?"
                )
            raise BudgetError(
                f"the header is larger than the {self.end} bytes that may be read for it: "
                f"{what} at byte {start} takes {nbytes} bytes"
            )
        self.position = start + nbytes
        return start

    def expect(self, nbytes: int, what: str) -> None:
        """Says why if the next `nbytes` are not there; a count that needs them is then not believed."""
        self.position = self.need(nbytes, what)

    def scalar(self, kind: ValueType, what: str) -> Any:
        """One number or boolean."""
        layout = SCALARS[kind]
        value = layout.unpack_from(self.data, self.need(layout.size, what))[0]
        if kind is not ValueType.BOOL:
            return value
        if value > 1:
            raise MalformedGgufError(f"{what} is a boolean with the value {value}; only 0 and 1 are")
        return value == 1

    def count(self, what: str, limit: int) -> int:
        """A count of the file's start, signed in the format."""
        value: int = self.scalar(ValueType.INT64, what)
        if not 0 <= value <= limit:
            raise MalformedGgufError(f"the {what} is {value}; it must be between 0 and {limit}")
        return value

    def string(self, what: str, limit: int) -> str:
        """A length and that many bytes of UTF-8."""
        length: int = self.scalar(ValueType.UINT64, what)
        if length > limit:
            raise MalformedGgufError(f"{what} is a string of {length} bytes; at most {limit} are allowed")
        start = self.need(length, what)
        try:
            return str(self.data[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise MalformedGgufError(f"{what} at byte {start} is not valid UTF-8") from None

    def strings(self, count: int, what: str) -> list[str]:
        """`count` strings. Written out flat: vocabularies have hundreds of thousands."""
        if count > min(MAX_ARRAY_STRINGS, self.strings_left):
            raise MalformedGgufError(
                f"{what} has {count} strings; at most {MAX_ARRAY_STRINGS} in one array "
                f"and {MAX_STRINGS} in all are allowed"
            )
        self.strings_left -= count
        data, end, unpack = self.data, self.end, U64.unpack_from
        result: list[str] = []
        position = self.position
        for _ in range(count):
            start = position + 8
            stop = start + unpack(data, position)[0] if start <= end else start
            if stop > end or stop - start > MAX_STRING_BYTES:
                break
            try:
                result.append(str(data[start:stop], "utf-8"))
            except UnicodeDecodeError:
                break
            position = stop
        self.position = position
        if len(result) < count:  # the careful path reads the same string again and says what is wrong
            self.string(f"element {len(result)} of {what}", MAX_STRING_BYTES)
        return result


def _read_version(reader: _Reader) -> int:
    start = bytes(reader.data[: min(64, reader.end)])
    if start[:4] != b"GGUF":
        raise NotGgufError(_what_else(start))
    reader.position = 4
    version: int = reader.scalar(ValueType.UINT32, "the version")
    if version & 0xFFFF == 0 and version:
        raise NotGgufError("the file is a big-endian GGUF; only little-endian files are supported")
    if version not in (2, 3):
        raise NotGgufError(f"the file is GGUF version {version}; versions 2 and 3 are supported")
    return version


def _what_else(start: bytes) -> str:
    text = start.lstrip().lower()
    if not start:
        return "the file is empty, not a GGUF model"
    if start[:4] == b"FUGG":
        return "the file is a big-endian GGUF; only little-endian files are supported"
    if text.startswith(b"version https://git-lfs"):
        return "the file is a Git LFS pointer, not the model itself; fetch it with 'git lfs pull'"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        return "the file is a web page, not a GGUF model; the download gave an error or a login page"
    if start[:4] in (b"tjgg", b"lmgg", b"fmgg", b"algg"):
        return "the file is in a GGML format older than GGUF; convert it again from its source"
    return f"the file does not start with the GGUF magic, but with the bytes {start[:4].hex(' ')}"


def _read_metadata(reader: _Reader, count: int) -> tuple[Metadata, int]:
    entries: dict[str, tuple[ValueType, Value]] = {}
    for index in range(count):
        key = reader.string(f"the name of key {index}", MAX_KEY_BYTES)
        if not key:
            raise MalformedGgufError(f"key {index} has an empty name")
        if key in entries:
            raise MalformedGgufError(f"key {shown(key)} appears twice")
        what = f"the value of key {shown(key)}"
        kind = _value_type(reader.scalar(ValueType.UINT32, what), what)
        entries[key] = (kind, _read_value(reader, kind, what))
    kind, alignment = entries.get("general.alignment", (ValueType.UINT32, DEFAULT_ALIGNMENT))
    if kind is not ValueType.UINT32 or not isinstance(alignment, int):
        raise MalformedGgufError(f"general.alignment is of type {kind.name}; it must be UINT32")
    if not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise MalformedGgufError(
            f"general.alignment is {alignment}; it must be a power of two of at most {MAX_ALIGNMENT}"
        )
    return Metadata(entries), alignment


def _value_type(type_id: int, what: str) -> ValueType:
    try:
        return ValueType(type_id)
    except ValueError:
        raise MalformedGgufError(f"{what} has the unknown type {type_id}") from None


def _read_value(reader: _Reader, kind: ValueType, what: str) -> Value:
    if kind is ValueType.STRING:
        return reader.string(what, MAX_STRING_BYTES)
    if kind is not ValueType.ARRAY:
        value: Value = reader.scalar(kind, what)
        return value
    element = _value_type(reader.scalar(ValueType.UINT32, what), what)
    count: int = reader.scalar(ValueType.UINT64, what)
    if element is ValueType.ARRAY:
        raise MalformedGgufError(f"{what} is an array of arrays; the format forbids them")
    if element is ValueType.STRING:
        reader.expect(8 * count, what)
        return reader.strings(count, what)
    layout = SCALARS[element]
    start = reader.need(layout.size * count, what)
    # A copy in the machine's own byte order, apart from the file's buffer.
    array = np.frombuffer(reader.data, layout.format, count, start).astype(np.dtype(layout.format[1:]))
    if element is ValueType.BOOL:
        if count and int(array.max()) > 1:
            raise MalformedGgufError(f"{what} has a boolean with the value {array.max()}; only 0 and 1 are")
        array = array.astype(np.bool_)
    array.flags.writeable = False
    return array


def _read_tensors(reader: _Reader, count: int) -> tuple[TensorInfo, ...]:
    tensors: dict[str, TensorInfo] = {}
    for index in range(count):
        name = reader.string(f"the name of tensor {index}", MAX_TENSOR_NAME_BYTES)
        if not name:
            raise MalformedGgufError(f"tensor {index} has an empty name")
        if name in tensors:
            raise MalformedGgufError(f"tensor {shown(name)} appears twice")
        what = f"tensor {shown(name)}"
        shape = _read_shape(reader, what)
        type_id: int = reader.scalar(ValueType.INT32, what)
        offset: int = reader.scalar(ValueType.UINT64, what)
        tensors[name] = TensorInfo(name, shape, type_id, offset)
    return tuple(tensors.values())


def _read_shape(reader: _Reader, what: str) -> tuple[int, ...]:
    n_dims: int = reader.scalar(ValueType.UINT32, what)
    if not 1 <= n_dims <= MAX_DIMENSIONS:
        raise MalformedGgufError(f"{what} has {n_dims} dimensions; 1 to {MAX_DIMENSIONS} are allowed")
    shape = tuple(int(reader.scalar(ValueType.INT64, what)) for _ in range(n_dims))
    if min(shape) < 1:
        raise MalformedGgufError(f"{what} has the shape {list(shape)}; every dimension must be positive")
    if math.prod(shape) > MAX_TENSOR_ELEMENTS:
        raise MalformedGgufError(f"{what} has the shape {list(shape)}: more than 2^63 - 1 elements")
    return shape
