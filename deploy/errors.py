"""The one error of set-up: it ends the command with a sentence instead of a traceback."""

from __future__ import annotations


class SetupError(Exception):
    """A step of set-up failed; `str(error)` says which and what to do."""
