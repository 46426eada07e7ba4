"""Finds the spellings of special tokens in text: longest first, from left to right.

It knows spellings and ids, not types or policies; who calls it has decided that they shall be found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_ID = ""  # the key under which a trie node keeps the id of the spelling that ends there


class SpecialInput:
    """Splits text at special spellings; time grows with the text, not with the number of spellings."""

    def __init__(self, spellings: Mapping[str, int]) -> None:
        self._trie: dict[str, Any] = {}  # character → node; "" → id
        for spelling, token in spellings.items():
            if not spelling:
                continue
            node = self._trie
            for character in spelling:
                node = node.setdefault(character, {})
            node[_ID] = token
        self._first = re.compile(f"[{re.escape(''.join(self._trie))}]") if self._trie else None

    def split(self, text: str) -> Iterator[str | int]:
        """Literal stretches (never empty) and token ids, in the order of the text."""
        start = position = 0
        while self._first is not None and (found := self._first.search(text, position)):
            token, end = self._longest(text, found.start())
            if token is None:
                position = found.start() + 1
                continue
            if start < found.start():
                yield text[start : found.start()]
            yield token
            start = position = end
        if start < len(text):
            yield text[start:]

    def _longest(self, text: str, start: int) -> tuple[int | None, int]:
        """The token of the longest spelling that begins at `start`, and where it ends."""
        token, end, node = None, start, self._trie
        for position in range(start, len(text)):
            node = node.get(text[position])  # type: ignore[assignment]
            if node is None:
                break
            if _ID in node:
                token, end = node[_ID], position + 1
        return token, end
