"""What can go wrong before any request is judged: a key that cannot be used.

Messages name the file that the caller gave and what is wrong with it; they never carry the key.
"""

from __future__ import annotations


class AuthError(Exception):
    """Base of the errors of this package; `str(error)` is one sentence that is safe to show."""


class KeyFormatError(AuthError):
    """The text offered as a key is empty, too short, too long or has characters that no key has."""


class KeyFileError(AuthError):
    """The key file is missing, is not a regular file, is open to others, or exists already."""
