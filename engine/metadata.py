"""The keys of a GGUF header as a read-only, ordered mapping with typed getters.

A getter names the key and both types when a value is missing or of another kind, so a model with odd
metadata is refused with a sentence and never read by chance. It does not know which keys a model needs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, KeysView, Mapping
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.errors import MetadataError


class ValueType(IntEnum):
    """Type ids of GGUF values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


Value = bool | int | float | str | list[str] | NDArray[Any]
Default = TypeVar("Default")
REQUIRED: Any = object()

INTEGERS = frozenset(
    {
        ValueType.UINT8,
        ValueType.INT8,
        ValueType.UINT16,
        ValueType.INT16,
        ValueType.UINT32,
        ValueType.INT32,
        ValueType.UINT64,
        ValueType.INT64,
    }
)
NUMBERS = INTEGERS | {ValueType.FLOAT32, ValueType.FLOAT64}


def shown(name: str) -> str:
    """A name out of a file, quoted, escaped and shortened so that it is safe in a one-line message."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


class Metadata:
    """Keys in file order. `entries` maps a key to its GGUF type and value.

    Arrays of strings are `list[str]`, arrays of numbers and booleans are one-dimensional NumPy arrays
    (not writable). Every getter takes a default for a missing key; without one a missing key is a
    `MetadataError`. A value of another type is a `MetadataError` in any case.
    """

    def __init__(self, entries: Mapping[str, tuple[ValueType, Value]]) -> None:
        self._entries = dict(entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> KeysView[str]:
        """All keys in the order of the file."""
        return self._entries.keys()

    def string(self, key: str, default: Default = REQUIRED) -> str | Default:
        """A string."""
        value: str | Default = self._value(key, default, {ValueType.STRING}, "a string")
        return value

    def uint(self, key: str, default: Default = REQUIRED) -> int | Default:
        """An integer of any width and signedness that is not negative."""
        value: int | Default = self._value(key, default, INTEGERS, "an integer")
        if key in self and isinstance(value, int) and value < 0:
            raise MetadataError(f"metadata key {shown(key)} is {value}; it must not be negative")
        return value

    def number(self, key: str, default: Default = REQUIRED) -> float | Default:
        """A finite float, or any integer."""
        value: float | Default = self._value(key, default, NUMBERS, "a number")
        if key not in self or not isinstance(value, int | float):
            return value
        if not math.isfinite(value):
            raise MetadataError(f"metadata key {shown(key)} is {value}; it must be finite")
        return float(value)

    def boolean(self, key: str, default: Default = REQUIRED) -> bool | Default:
        """A boolean."""
        value: bool | Default = self._value(key, default, {ValueType.BOOL}, "a boolean")
        return value

    def uint32_id(self, key: str) -> int | None:
        """A token id: None if the key is missing, otherwise it must be stored as UINT32."""
        value: int | None = self._value(key, None, {ValueType.UINT32}, "of type UINT32")
        return value

    def strings(self, key: str, default: Default = REQUIRED) -> list[str] | Default:
        """An array of strings; the list is the stored one and must not be changed."""
        value: list[str] | Default = self._value(key, default, {ValueType.ARRAY}, "an array of strings")
        if key in self and not isinstance(value, list):
            raise self._wrong(key, "an array of strings")
        return value

    def integers(self, key: str, default: Default = REQUIRED) -> NDArray[np.int64] | Default:
        """An array of integers or booleans, as a new int64 array."""
        value: Any = self._value(key, default, {ValueType.ARRAY}, "an array of integers")
        if key not in self:
            return value  # type: ignore[no-any-return]  # the default
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iub":
            raise self._wrong(key, "an array of integers")
        if value.dtype == np.uint64 and value.size and int(value.max()) >= 2**63:
            raise MetadataError(f"metadata key {shown(key)} has a value of 2^63 or more")
        return value.astype(np.int64)

    def _value(self, key: str, default: Any, kinds: Collection[ValueType], expected: str) -> Any:
        if key not in self:
            if default is REQUIRED:
                raise MetadataError(f"metadata key {shown(key)} is missing; the model needs it")
            return default
        kind, value = self._entries[key]
        if kind not in kinds:
            raise self._wrong(key, expected)
        return value

    def _wrong(self, key: str, expected: str) -> MetadataError:
        kind, value = self._entries[key]
        found = f"of type {kind.name}"
        if isinstance(value, list):
            found = "an array of strings"
        elif isinstance(value, np.ndarray):
            found = f"an array of {value.dtype}"
        return MetadataError(f"metadata key {shown(key)} is {found}; it must be {expected}")
