from __future__ import annotations

import math

import numpy as np
import pytest

from engine.errors import MetadataError
from engine.gguf import Metadata, parse_header
from engine.metadata import shown
from tests.gguf_writer import GgufWriter


def metadata() -> Metadata:
    """One key of every kind, as parsed from a file."""
    data = (
        GgufWriter()
        .add("text", "string", "x")
        .add("u32", "u32", 7)
        .add("i32", "i32", -7)
        .add("u64", "u64", 7)
        .add("f32", "f32", 1.5)
        .add("nan", "f32", math.nan)
        .add("inf", "f64", math.inf)
        .add("flag", "bool", False)
        .add("texts", "[string]", ["a"])
        .add("ints", "[i16]", [-1, 2])
        .add("flags", "[bool]", [True])
        .add("floats", "[f32]", [1.5])
        .add("big", "[u64]", [2**63])
        .build()
    )
    return parse_header(data, len(data)).metadata


def test_values() -> None:
    """Every getter gives the stored value in its Python type."""
    keys = metadata()
    assert keys.string("text") == "x"
    assert keys.uint("u32") == 7
    assert keys.number("f32") == 1.5
    assert isinstance(keys.number("u32"), float)
    assert keys.boolean("flag") is False
    assert keys.strings("texts") == ["a"]
    assert keys.integers("ints").tolist() == [-1, 2]
    assert keys.integers("flags").dtype == np.int64
    assert keys.uint32_id("u32") == 7
    assert len(keys) == len(list(keys)) == len(keys.keys()) == 13


def test_missing_keys() -> None:
    """A missing key gives the default, or an error that names it."""
    keys = metadata()
    assert "none" not in keys
    assert keys.string("none", None) is None
    assert keys.uint("none", 3) == 3
    assert keys.number("none", 2.5) == 2.5
    assert keys.boolean("none", default=True) is True
    assert keys.strings("none", []) == []
    assert keys.integers("none", None) is None
    assert keys.uint32_id("none") is None
    for getter in (keys.string, keys.uint, keys.number, keys.boolean, keys.strings, keys.integers):
        with pytest.raises(MetadataError, match="'none' is missing"):
            getter("none")


@pytest.mark.parametrize(
    ("getter", "key", "words"),
    [
        ("string", "u32", "of type UINT32; it must be a string"),
        ("string", "texts", "an array of strings; it must be a string"),
        ("uint", "f32", "of type FLOAT32; it must be an integer"),
        ("uint", "flag", "of type BOOL"),
        ("uint", "i32", "is -7; it must not be negative"),
        ("number", "text", "of type STRING; it must be a number"),
        ("number", "flag", "of type BOOL"),
        ("number", "nan", "is nan; it must be finite"),
        ("number", "inf", "is inf; it must be finite"),
        ("boolean", "u32", "it must be a boolean"),
        ("strings", "text", "it must be an array of strings"),
        ("strings", "ints", "an array of int16; it must be an array of strings"),
        ("integers", "u32", "it must be an array of integers"),
        ("integers", "texts", "an array of strings; it must be an array of integers"),
        ("integers", "floats", "an array of float32; it must be an array of integers"),
        ("integers", "big", "2\\^63 or more"),
        ("uint32_id", "u64", "it must be of type UINT32"),
        ("uint32_id", "i32", "it must be of type UINT32"),
    ],
)
def test_wrong_types(getter: str, key: str, words: str) -> None:
    """A value of another type is an error that names the key and both types, default or not."""
    with pytest.raises(MetadataError, match=words) as caught:
        getattr(metadata(), getter)(key)
    assert f"'{key}'" in str(caught.value)


def test_defaults_do_not_hide_wrong_types() -> None:
    """A default stands for a missing key only."""
    with pytest.raises(MetadataError):
        metadata().string("u32", "fallback")


def test_names_are_safe_to_show() -> None:
    """Names out of a file are quoted, escaped and short in messages."""
    assert shown("a\n\x1b[31m\u202e") == "'a\\n\\x1b[31m\\u202e'"
    assert len(shown("x" * 65_000)) == 82
