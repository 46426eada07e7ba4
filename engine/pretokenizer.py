"""Splits text into the pieces within which byte pairs may merge, by the rule that the file names.

Each rule is one regular expression over Unicode text (no normalisation). The module knows nothing of
vocabularies; every character of the text ends up in exactly one piece.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from engine.errors import InvalidInputError, UnsupportedTokenizerError

MAX_PIECE_BYTES = 1 << 16
# A piece is at least one token: what exceeds this fits no context that the engine admits.
MAX_PIECES = 262_144

# A contraction; one optional leading character and letters; one digit; other characters with the line
# breaks after them; line breaks with the space before them; space up to the last before a word; space.
_QWEN2 = (
    r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
# As qwen2, but combining marks count as letters.
_QWEN35 = (
    r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
# The rule is defined as two passes: digits apart first, then GPT-2's expression on what lies between.
# In one pass a digit therefore ends the text for "space up to the last before a word".
_SMOLLM = (
    r"'(?:s|t|re|ve|m|ll|d)"
    r"| ?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+"
    r"|\s+(?![^\s\p{N}])"
    r"|\s+"
)

_PATTERNS = {
    "qwen2": _QWEN2,
    "qwen35": _QWEN35,
    "smollm": _SMOLLM,
    # Declared by other models, the same rule by definition.
    "refact": _SMOLLM,
    "starcoder": _SMOLLM,
}


class PreTokenizer:
    """The rule of a `tokenizer.ggml.pre` name; unknown names are refused. Immutable."""

    def __init__(self, name: str) -> None:
        if name not in _PATTERNS:
            raise UnsupportedTokenizerError(
                f"tokenizer.ggml.pre names the pre-tokenizer {name!r}; supported are {', '.join(_PATTERNS)}"
            )
        self._pattern = regex.compile(_PATTERNS[name])

    def pieces(self, text: str) -> Iterator[str]:
        """The pieces of `text` in order; joined, they are the text.

        Ends with an `InvalidInputError` at the first piece of more than 64 KiB of UTF-8 or beyond the
        262,144th. Only who takes all pieces knows that there is none.
        """
        for number, match in enumerate(self._pattern.finditer(text), 1):
            piece = match.group()
            if number > MAX_PIECES:
                raise InvalidInputError(f"the text has more than {MAX_PIECES} words, numbers and signs")
            if len(piece) > MAX_PIECE_BYTES // 4:  # otherwise it is short enough in any case
                check_piece(len(piece.encode("utf-8")))
            yield piece

    def split(self, text: str) -> list[str]:
        """All pieces of `text`, checked."""
        return list(self.pieces(text))


def check_piece(nbytes: int) -> None:
    """Refuse a piece that is longer than 64 KiB."""
    if nbytes > MAX_PIECE_BYTES:
        raise InvalidInputError(
            f"a stretch of text without a word boundary has {nbytes} bytes; "
            f"at most {MAX_PIECE_BYTES} are allowed"
        )
