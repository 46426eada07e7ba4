"""Token input: accepted exactly where a strict reading of the standard library's parser accepts.

The model here parses with `json.loads` and refuses what that library reads beyond a flat array of plain
unsigned 32-bit numbers; the engine's reader uses no JSON library.
"""

from __future__ import annotations

import io
import json
from typing import Any, NoReturn

from hypothesis import strategies as st

from engine.errors import InvalidInputError
from engine.token_input import read_tokens
from tests.fuzz.target import Target

LIMIT = 40
FRAGMENTS = [
    *("[", "]", ",", ":", "{", "}", " ", "\n", "\t", "\r", '"', "'", "//", "/*", "*/", "#", "\\", "\x00"),
    *("0", "1", "7", "42", "00", "01", "-", "-0", "-1", "+1", ".", "1.0", "1e2", "1E2", "0x1", "1_0"),
    *("4294967295", "4294967296", "9999999999", "99999999999", "null", "true", "false", "NaN", "Infinity"),
    *("[]", "[1]", ",1", ", 2", "\ufeff", "\xa0", "\u2028", "\x0b", "\x0c", "١", "１", "²", "é"),
]
SPACE = st.text(" \t\r\n", max_size=3)
NUMBERS = st.integers(0, 2**32 - 1) | st.integers(0, 9)
ARRAYS = st.lists(NUMBERS.map(str), max_size=LIMIT + 5)
# What may stand in the place of one number, or of one space.
ODD = [
    "00",
    "01",
    "-0",
    "-1",
    "+1",
    "1.0",
    "1e2",
    "0x1",
    "1_0",
    "1 0",
    "",
    "null",
    "true",
    "[1]",
    "[]",
    '"1"',
    "{}",
    "١",
]
ODD += [str(2**32 - 1), str(2**32), str(10**10 - 1), "0" * 11, "9" * 400, "1\x00", "1//", "#1"]
ODD_SPACE = ["\x0b", "\x0c", "\x00", "\x1c", "\x85", "\xa0", "\u2028", "\ufeff", "//", ","]


@st.composite
def spaced(draw: st.DrawFn) -> bytes:
    """A true array with white space anywhere that JSON allows it; now and then one thing in it is odd."""
    numbers = draw(ARRAYS)
    if draw(st.integers(0, 2)) == 0:
        numbers.insert(draw(st.integers(0, len(numbers))), draw(st.sampled_from(ODD)))
    parts = [draw(SPACE) + number + draw(SPACE) for number in numbers]
    text = draw(SPACE) + "[" + (",".join(parts) or draw(SPACE)) + "]" + draw(SPACE)
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.sampled_from([at for at, sign in enumerate(text + "]") if sign in "[],"]))
        text = text[:place] + draw(st.sampled_from(ODD_SPACE)) + text[place:]
    return text.encode()


@st.composite
def changed(draw: st.DrawFn) -> bytes:
    """A true array with a byte replaced, taken out or put in."""
    text = bytearray(draw(spaced()))
    place = draw(st.integers(0, len(text)))
    text[place : place + draw(st.integers(0, 1))] = draw(st.binary(max_size=1))
    return bytes(text)


CASES = (
    spaced()
    | changed()
    | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join).map(str.encode)
    | st.lists(st.sampled_from(FRAGMENTS), max_size=8).map(lambda parts: f"[{''.join(parts)}]".encode())
    | st.binary(max_size=20)
)


def check(raw: bytes) -> None:
    """Both accept the same ids, or both refuse."""
    try:
        ids: list[int] | None = read_tokens(io.BytesIO(raw), LIMIT)
    except InvalidInputError:
        ids = None
    assert ids == model(raw)


def model(raw: bytes) -> list[int] | None:
    """The ids of a strict array of at most `LIMIT`, or None."""
    try:
        value: Any = json.loads(
            raw.decode("ascii"), parse_int=_plain, parse_float=_refuse, parse_constant=_refuse
        )
    except ValueError:
        return None
    if not isinstance(value, list) or len(value) > LIMIT:
        return None
    return value if all(type(item) is int and item < 2**32 for item in value) else None


def _plain(digits: str) -> int:
    return _refuse(digits) if digits.startswith("-") or len(digits) > 10 else int(digits)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


TARGET = Target("token-json", CASES, check)
