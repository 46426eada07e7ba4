"""Strict readers for option values. Messages name the rule and never repeat the value."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from engine.errors import InvalidInputError
from engine.token_input import MAX_TOKENS, parse_ids

MAX_STOP_TOKENS = 256

_INTEGER = re.compile("0|[1-9][0-9]{0,19}")
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")


def integer(low: int, high: int) -> Callable[[str], int]:
    """A reader of unsigned decimal integers in a range."""

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
            raise ArgumentTypeError(f"must be an integer from {low} to {high}")
        return int(text)

    return read


def choice(*words: str) -> Callable[[str], str]:
    """A reader of one of a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise ArgumentTypeError(f"must be one of {', '.join(words)}")
        return text

    return read


def decimal(text: str) -> float:
    """A number that is not negative, such as 0.95; whether it makes sense is for its user to say."""
    if not _DECIMAL.fullmatch(text):
        raise ArgumentTypeError("must be a decimal number such as 0.95")
    return float(text)


def token_ids(text: str) -> tuple[int, ...]:
    """A comma-separated list of at least one token id, without spaces."""
    try:
        return tuple(parse_ids(text, MAX_TOKENS))
    except InvalidInputError:
        raise ArgumentTypeError("must be unsigned 32-bit token ids joined by commas, such as 42,17") from None


def stop_token_ids(text: str) -> tuple[int, ...]:
    """Token ids of which at most 256 differ; order is kept, repetitions are dropped."""
    stops = tuple(dict.fromkeys(token_ids(text)))
    if len(stops) > MAX_STOP_TOKENS:
        raise ArgumentTypeError(f"has {len(stops)} different ids; at most {MAX_STOP_TOKENS} are allowed")
    return stops


def path(text: str) -> Path:
    """A path that is not empty."""
    if not text or "\0" in text:
        raise ArgumentTypeError("must be a path")
    return Path(text)


def digest(text: str) -> str:
    """64 hex digits, in lower case."""
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ArgumentTypeError("must be 64 hex digits")
    return text.lower()
