"""Rotary position embedding: frequencies from a file's keys, and tables.

Tables are computed in float64 and rounded once to float32, for every position of the context. `linear`
scaling divides positions; `yarn` (Peng et al., 2023, as llama.cpp applies it) blends divided and original
frequencies between two correction dimensions and scales the result by 1 + 0.1 ln(factor).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.errors import MetadataError, UnsupportedArchitectureError
from engine.gguf import Metadata
from engine.kernels.canon import Floats, RopeRows


@dataclass
class RopeTable:
    """Cosines and sines [context, pairs]; `adjacent` pairs are (2i, 2i+1), others (i, i + pairs)."""

    cosines: Floats
    sines: Floats
    adjacent: bool
    _last: tuple[int, int, RopeRows] | None = field(default=None, repr=False)  # all layers ask for the same

    def rows(self, position: int, tokens: int) -> RopeRows:
        """The rows of `tokens` positions from `position` on."""
        last = self._last
        if last is None or last[0] != position or last[1] != tokens:
            run = slice(position, position + tokens)
            rows = RopeRows(self.cosines[run], self.sines[run], self.adjacent)
            last = self._last = (position, tokens, rows)
        return last[2]


def rope_table(
    metadata: Metadata,
    architecture: str,
    head_dim: int,
    context: int,
    adjacent: bool = False,
    divisors: Floats | None = None,
) -> RopeTable:
    """The table that `ARCHITECTURE.rope.*` describes; `divisors` [pairs] divide the frequencies."""
    key = f"{architecture}.rope."
    dims = metadata.uint(key + "dimension_count", head_dim)
    if dims == 0 or dims % 2 or dims > head_dim:
        raise MetadataError(f"{key}dimension_count is {dims}; expected an even number up to {head_dim}")
    base = metadata.number(key + "freq_base", 10000.0)
    if not (math.isfinite(base) and base > 1):
        raise MetadataError(f"{key}freq_base is {base}; expected a finite number above 1")
    frequencies = base ** (-2.0 * np.arange(dims // 2) / dims)
    if divisors is not None:
        frequencies = frequencies / divisors.astype(np.float64)
    frequencies, magnitude = _scaled(metadata, key, frequencies, base, dims)
    angles = np.arange(context, dtype=np.float64)[:, None] * frequencies
    return RopeTable(
        (np.cos(angles) * magnitude).astype(np.float32),
        (np.sin(angles) * magnitude).astype(np.float32),
        adjacent,
    )


def _scaled(
    metadata: Metadata, key: str, frequencies: NDArray[np.float64], base: float, dims: int
) -> tuple[NDArray[np.float64], float]:
    kind = metadata.string(key + "scaling.type", "linear")
    factor = metadata.number(key + "scaling.factor", 0.0)
    if kind == "none" or (kind == "linear" and factor == 0):
        return frequencies, 1.0
    if not (math.isfinite(factor) and factor > 0):
        raise MetadataError(f"{key}scaling.factor is {factor}; expected a positive number")
    if kind == "linear":
        return frequencies / factor, 1.0
    if kind != "yarn":
        raise UnsupportedArchitectureError(f"{key}scaling.type is {kind!r}; implemented: none, linear, yarn")
    original = metadata.uint(key + "scaling.original_context_length")
    if original == 0:
        raise MetadataError(f"{key}scaling.original_context_length is 0")
    if metadata.number(key + "scaling.yarn_ext_factor", 1.0) != 1.0:
        raise UnsupportedArchitectureError(f"{key}scaling.yarn_ext_factor other than 1 is not implemented")

    def correction(rotations: float) -> float:
        return dims * math.log(original / (2 * math.pi * rotations)) / (2 * math.log(base))

    low = max(0, math.floor(correction(metadata.number(key + "scaling.yarn_beta_fast", 32.0))))
    high = min(dims - 1, math.ceil(correction(metadata.number(key + "scaling.yarn_beta_slow", 1.0))))
    ramp = 1 - np.clip((np.arange(dims // 2) - low) / max(0.001, high - low), 0, 1)
    magnitude = (1 + 0.1 * math.log(factor)) * metadata.number(key + "scaling.attn_factor", 1.0)
    return frequencies * ((1 - ramp) / factor + ramp), magnitude
