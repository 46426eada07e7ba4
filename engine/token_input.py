"""Reads one sequence of token ids from a file or stream: a strict JSON array of unsigned 32-bit numbers.

Order and duplicates are kept. Comments, signs, fractions, exponents, leading zeros, nested values and
anything after the array are refused, and nothing is returned of a refused input.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from engine.errors import InvalidInputError
from engine.prompt_input import read_bounded

MAX_TOKEN_INPUT_BYTES = 1024 * 1024
MAX_TOKENS = 262_144
MAX_TOKEN_ID = 2**32 - 1

JSON_WHITESPACE = " \t\r\n"
_NUMBER = re.compile("0|[1-9][0-9]{0,9}")


def read_tokens(stream: BinaryIO, limit: int = MAX_TOKENS) -> list[int]:
    """The ids of the array, which may be empty; takes at most 1 MiB and one byte from the stream.

    `limit` is the largest number of ids. Raises `InvalidInputError`, or an `OSError` of the original kind.
    """
    raw = read_bounded(stream, MAX_TOKEN_INPUT_BYTES, "token input")
    if len(raw) > MAX_TOKEN_INPUT_BYTES:
        raise _refused(f"is larger than {MAX_TOKEN_INPUT_BYTES} bytes")
    try:
        text = raw.decode("ascii").strip(JSON_WHITESPACE)
    except UnicodeDecodeError:
        text = ""
    if not (text.startswith("[") and text.endswith("]") and len(text) > 1):
        raise _refused("must be one JSON array of token ids, such as [42,17]")
    inside = text[1:-1].strip(JSON_WHITESPACE)
    return parse_ids(inside, limit, JSON_WHITESPACE) if inside else []


def parse_ids(text: str, limit: int, whitespace: str = "") -> list[int]:
    """The ids of a comma-separated list; `whitespace` characters are allowed around each."""
    count = text.count(",") + 1
    if count > limit:
        raise _refused(f"has {count} ids; at most {limit} are allowed here")
    ids: list[int] = []
    for item in text.split(","):
        number = item.strip(whitespace)
        if not _NUMBER.fullmatch(number) or int(number) > MAX_TOKEN_ID:
            raise _refused(f"has an entry that is no unsigned 32-bit number, at index {len(ids)}")
        ids.append(int(number))
    return ids


def _refused(problem: str) -> InvalidInputError:
    return InvalidInputError(f"the token input {problem}", field="tokens")
