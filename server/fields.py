"""Explicit reading of request objects: typed getters that name the path, and the tables of fields.

A table says of every field that an endpoint knows whether it is honoured, ignored or refused; a field in no
table is an error. `docs/http.md` prints these tables and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from engine.strict_json import field_name
from server.errors import ApiError, bad_field

_NAMES = {str: "a string", bool: "true or false", int: "an integer", dict: "an object", list: "an array"}


@dataclass(frozen=True)
class FieldTable:
    """The fields of one kind of object."""

    honoured: Collection[str]
    ignored: Mapping[str, type]  # field → the type that it must have nevertheless
    refused: Mapping[str, tuple[object, ...]]  # field → values beside null that mean "not used"

    def check(self, value: dict[str, Any], path: str = "") -> Fields:
        """Refuse what the table refuses or does not know; return the object for reading."""
        fields = Fields(value, path)
        for key, item in value.items():
            if key in self.honoured or (item is None and (key in self.ignored or key in self.refused)):
                continue
            if key in self.ignored:
                fields.typed(key, self.ignored[key])
            elif key in self.refused:
                self._check_neutral(fields.path(key), item, self.refused[key])
            else:
                name = fields.path(field_name(key))
                raise bad_field(name, "this server knows no such field", "unknown_parameter")
        return fields

    @staticmethod
    def _check_neutral(path: str, item: object, neutral: tuple[object, ...]) -> None:
        if not any(type(item) is type(value) and item == value for value in neutral):
            raise bad_field(path, "this server does not support the field", "unsupported_parameter")


class Fields:
    """One request object; every getter treats null as absent and refuses other types with the path."""

    def __init__(self, value: dict[str, Any], path: str = "") -> None:
        self._value = value
        self._path = path

    def path(self, key: str) -> str:
        """The path of the field `key` for messages."""
        return f"{self._path}.{key}" if self._path else key

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._value.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as it was parsed, None if absent."""
        return self._value.get(key)

    def typed(self, key: str, kind: type) -> Any:
        """The value if it is exactly of `kind` (a boolean is no integer), None if absent."""
        value = self._value.get(key)
        if value is not None and type(value) is not kind:
            raise bad_field(self.path(key), f"must be {_NAMES[kind]}", "invalid_type")
        return value

    def string(self, key: str) -> str | None:
        """A string."""
        value: str | None = self.typed(key, str)
        return value

    def boolean(self, key: str) -> bool | None:
        """True or false."""
        value: bool | None = self.typed(key, bool)
        return value

    def integer(self, key: str, low: int, high: int) -> int | None:
        """An integer from `low` to `high`, both included."""
        value: int | None = self.typed(key, int)
        if value is not None and not low <= value <= high:
            raise bad_field(self.path(key), f"must be from {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float) -> float | None:
        """A finite number from `low` to `high`, both included; integers count."""
        value = self._value.get(key)
        if value is None:
            return None
        if type(value) not in (int, float):
            raise bad_field(self.path(key), "must be a number", "invalid_type")
        if not low <= value <= high:
            raise bad_field(self.path(key), f"must be from {low:g} to {high:g}")
        return float(value)

    def choice(self, key: str, choices: Collection[str]) -> str | None:
        """One of `choices`."""
        value = self.string(key)
        if value is not None and value not in choices:
            raise bad_field(self.path(key), f"must be one of {', '.join(choices)}")
        return value

    def objects(self, key: str, most: int) -> list[tuple[str, dict[str, Any]]] | None:
        """An array of 1 to `most` objects, each with its path."""
        value = self.typed(key, list)
        if value is None:
            return None
        path = self.path(key)
        if not 1 <= len(value) <= most:
            raise bad_field(path, f"must have 1 to {most} entries")
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                raise bad_field(f"{path}[{index}]", "must be an object", "invalid_type")
        return [(f"{path}[{index}]", item) for index, item in enumerate(value)]

    def required(self, key: str) -> ApiError:
        """The error for a field that is not there."""
        return bad_field(self.path(key), "is required", "missing_required_parameter")


def token_ids(value: list[Any], path: str, vocabulary_size: int) -> list[int]:
    """`value` as token ids, each an integer inside the vocabulary."""
    for index, token in enumerate(value):
        if type(token) is not int:
            raise bad_field(f"{path}[{index}]", "must be an integer", "invalid_type")
        if not 0 <= token < vocabulary_size:
            raise bad_field(f"{path}[{index}]", f"must be from 0 to {vocabulary_size - 1}")
    return value
