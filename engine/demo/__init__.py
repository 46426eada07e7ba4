"""The small language model that the package carries, to try the engine, to test it and to test itself.

What it knows and how it was made is told in `docs/embedded-model.md`. Importing this reads nothing.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent


def manifest_path() -> Path:
    """The manifest that pins the embedded model's file, which lies beside it."""
    return _FOLDER / "model.toml"


def receipt_path(activation_bits: int) -> Path:
    """The receipt of the answer that the self-test repeats, for activations of 8 or 16 bits."""
    return _FOLDER / f"self-test-{activation_bits}.json"
