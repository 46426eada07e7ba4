"""Request bodies: bounded while they are received, then parsed by stricter rules than JSON libraries have.

Refused are duplicate keys, NaN and infinities (also as huge exponents), half surrogate pairs, deep nesting
and everything that is not one JSON object in UTF-8. Which fields the object may have is not decided here.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from starlette.requests import Request

from server.errors import ApiError, bad_field

MAX_DEPTH = 64

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_body(request: Request, limit: int) -> bytes:
    """The body of `request`, refused with 413 as soon as it is known to exceed `limit` bytes."""
    too_large = ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")
    _check_content(request)
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise too_large
        body += chunk
    return bytes(body)


def _check_content(request: Request) -> None:
    kinds = request.headers.getlist("content-type")
    kind, _, parameters = (kinds[0] if len(kinds) == 1 else "").partition(";")
    if kind.strip().lower() != "application/json" or parameters.strip().lower() not in (
        "",
        "charset=utf-8",
        'charset="utf-8"',
    ):
        raise ApiError(415, "The content type must be application/json.", code="unsupported_media_type")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "Compressed bodies are not supported.", code="unsupported_media_type")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that `body` holds, or a 400."""
    _check_depth(body)
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise _invalid(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _invalid(f"syntax error at line {error.lineno} column {error.colno}") from None
    except ValueError:  # the integer has more digits than Python converts
        raise _invalid("a number is too long") from None
    if not isinstance(value, dict):
        raise _invalid("it must be an object")
    if _SURROGATE_ESCAPE.search(body) is not None:
        _check_surrogates(value)
    return value


def _check_depth(body: bytes) -> None:
    depth = 0
    for bracket in _STRING.sub(b"", body).translate(None, _NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise _invalid(f"it is nested deeper than {MAX_DEPTH} levels")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _invalid("an object has the same key twice")
    return result


def _no_constant(_name: str) -> float:
    raise _invalid("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _invalid("a number is too large")
    return value


def _check_surrogates(root: dict[str, Any]) -> None:
    """Find a string that no UTF-8 can hold; the path names the field, cut where keys are the client's own."""
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, str) and not _is_unicode(value):
            raise bad_field(path, "the text holds half of a surrogate pair, which is no character")
        if isinstance(value, dict):
            if not all(map(_is_unicode, value)):
                raise _invalid("a key holds half of a surrogate pair, which is no character")
            waiting += [(f"{path}.{field_name(key)}".lstrip("."), item) for key, item in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{index}]", item) for index, item in enumerate(value)]


def field_name(key: str) -> str:
    """A key of the client's as it may stand in a message: itself if it looks like a field, else a dash."""
    return key if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", key, re.ASCII) else "-"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _invalid(reason: str) -> ApiError:
    return ApiError(400, f"The body is not acceptable JSON: {reason}.", code="invalid_json")
