"""The metadata of a pinned file and nothing else of it, for whoever needs its tokens but not its weights."""

from __future__ import annotations

from engine.artifact import Pin, Progress, read_verified_header
from engine.gguf import MAX_HEADER_BYTES, Metadata, parse_header


def read_metadata(pin: Pin, metadata_bytes: int, progress: Progress | None = None) -> Metadata:
    """Hashes the whole file and reads its header from its first `metadata_bytes`, at most 256 MiB.

    Raises the errors of `read_verified_header` and `parse_header`: `BudgetError` if the header is longer.
    """
    header = read_verified_header(pin, min(MAX_HEADER_BYTES, metadata_bytes), progress)
    return parse_header(header, pin.nbytes).metadata
