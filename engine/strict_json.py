"""One JSON object in UTF-8, parsed by stricter rules than JSON libraries have.

Refused are duplicate keys, NaN and infinities (also as huge exponents), half surrogate pairs, deep nesting
and everything that is not one object. Bounding the bytes, and which fields there may be, is for the caller.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from engine.errors import InvalidInputError

MAX_DEPTH = 64

# A string may lack its end: were it then no match, each quote in it would be tried anew, in quadratic time.
_STRING = re.compile(rb'"[^"\\]*(?:\\.?[^"\\]*)*"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class StrictJsonError(InvalidInputError):
    """The bytes are refused; `field` is the path of a text at fault, None if it is the JSON itself."""

    code = "invalid_json"


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that `body` holds, or a `StrictJsonError`."""
    _check_depth(body)
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise StrictJsonError(f"syntax error at line {error.lineno} column {error.colno}") from None
    except ValueError:  # the integer has more digits than Python converts
        raise StrictJsonError("a number is too long") from None
    if not isinstance(value, dict):
        raise StrictJsonError("it must be an object")
    if _SURROGATE_ESCAPE.search(body) is not None:
        _check_surrogates(value)
    return value


def without_strings(body: bytes) -> bytes:
    """What is left of JSON without its strings: brackets, numbers, words and signs."""
    return _STRING.sub(b"", body)


def field_name(key: str) -> str:
    """A key of the client's as it may stand in a message: itself if it looks like a field, else a dash."""
    return key if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", key, re.ASCII) else "-"


def _check_depth(body: bytes) -> None:
    depth = 0
    for bracket in without_strings(body).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise StrictJsonError(f"it is nested deeper than {MAX_DEPTH} levels")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise StrictJsonError("an object has the same key twice")
    return result


def _no_constant(_name: str) -> float:
    raise StrictJsonError("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise StrictJsonError("a number is too large")
    return value


def _check_surrogates(root: dict[str, Any]) -> None:
    """Find a string that no UTF-8 can hold; the path names the field, cut where keys are the client's own."""
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str) and not is_unicode(value):
            raise StrictJsonError("the text holds half of a surrogate pair, which is no character", path)
        if isinstance(value, dict):
            if not all(map(is_unicode, value)):
                raise StrictJsonError("a key holds half of a surrogate pair, which is no character")
            waiting += [(f"{path}.{field_name(key)}".lstrip("."), item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(value)]


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold the text: it has no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
