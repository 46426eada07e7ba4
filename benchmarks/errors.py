"""What can go wrong in a measurement, apart from what the engine itself raises."""

from __future__ import annotations


class BenchmarkError(Exception):
    """A measurement cannot be made; the message says what to do about it."""
