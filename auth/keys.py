"""The bearer key as a value that does not show itself, and the comparison that gives no hints.

A key is 16 to 512 characters of the set that RFC 6750 allows in an Authorization header. What a caller
presents is compared by SHA-256 digests, so neither its length nor its first characters change the time.
Where a key comes from is `key_file`'s business.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from auth.errors import KeyFormatError

MIN_LENGTH = 16
MAX_LENGTH = 512

_ALLOWED = re.compile(r"[A-Za-z0-9\-._~+/]+={0,2}", re.ASCII)


class Key:
    """One bearer key. `repr`, `str` and formatting are masked; `reveal()` is the only way to the text."""

    __slots__ = ("_digest", "_text")

    def __init__(self, text: str) -> None:
        """Take `text` as the key, or raise `KeyFormatError` saying which rule it breaks."""
        if not text:
            raise KeyFormatError("the key is empty")
        if _ALLOWED.fullmatch(text) is None:
            raise KeyFormatError(
                "the key has characters outside A-Z a-z 0-9 - . _ ~ + / = "
                "(white space, a byte order mark, a carriage return or a second line count as such)"
            )
        if not MIN_LENGTH <= len(text) <= MAX_LENGTH:
            raise KeyFormatError(
                f"the key has {len(text)} characters, but {MIN_LENGTH} to {MAX_LENGTH} are required"
            )
        self._text = text
        self._digest = hashlib.sha256(text.encode("ascii")).digest()

    @classmethod
    def generate(cls) -> Key:
        """Return a new random key of 43 characters (256 bits)."""
        return cls(secrets.token_urlsafe(32))

    def matches(self, presented: bytes) -> bool:
        """Tell whether `presented` is this key; the time does not depend on how much of it is right."""
        return hmac.compare_digest(hashlib.sha256(presented).digest(), self._digest)

    def reveal(self) -> str:
        """Return the key itself, for writing it where its owner asked for it."""
        return self._text

    def __repr__(self) -> str:
        return "Key(****)"

    __str__ = __repr__
