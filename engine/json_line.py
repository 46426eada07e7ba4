"""JSON on one line: compact, and safe for readers that split lines carelessly."""

from __future__ import annotations

import json

# Legal inside JSON strings, but line ends to Unicode line splitters: written as escapes.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def to_json(value: object) -> str:
    """`value` as one line of JSON; non-finite numbers are an error (`ValueError`)."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_LINE_ENDS)
