"""The small language model that the package carries, to try the engine and to test it with.

What it knows and how it was made is told in `docs/embedded-model.md`. Importing this reads nothing.
"""

from __future__ import annotations

from pathlib import Path


def manifest_path() -> Path:
    """The manifest that pins the embedded model's file, which lies beside it."""
    return Path(__file__).with_name("model.toml")
