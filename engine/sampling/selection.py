"""Which tokens may be drawn and how likely each is: rank, temperature, top-k, nucleus, min-p, draw.

Weights come from the contract's own exp and are added up in binary64 in the order of the ranking, so that
a draw depends on logits, settings and one fraction, and on nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidInputError
from engine.kernels.canon import Floats, exp
from engine.sampling.ranking import Ids, rank


@dataclass(frozen=True)
class Candidates:
    """The ids that may be drawn, likeliest first, and the running sums of their weights in binary64."""

    ids: Ids
    cumulative: NDArray[np.float64]

    def draw(self, fraction: float) -> int:
        """The first id whose running sum exceeds that fraction, from 0 to below 1, of the whole."""
        threshold = fraction * self.cumulative[-1]
        return int(self.ids[np.searchsorted(self.cumulative, threshold, side="right")])


@dataclass(frozen=True)
class Selection:
    """How candidates are chosen from logits.

    `temperature` > 0; `top_k` 0 keeps the whole vocabulary; the nucleus is the shortest ranked prefix whose
    mass reaches `top_p`, in (0, 1], of the top-k mass; `min_p`, from 0 to 1, then drops what weighs less
    than that share of the likeliest. Raises InvalidInputError for other values.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InvalidInputError(f"temperature {self.temperature} is not a positive number", "temperature")
        if self.top_k < 0:
            raise InvalidInputError(f"top-k {self.top_k} is negative", "top_k")
        if not 0 < self.top_p <= 1:
            raise InvalidInputError(f"top-p {self.top_p} is not in (0, 1]", "top_p")
        if not 0 <= self.min_p <= 1:
            raise InvalidInputError(f"min-p {self.min_p} is not in [0, 1]", "min_p")

    def candidates(self, logits: Floats) -> Candidates:
        """What remains of float32 logits [vocabulary]; EngineFaultError if no logit is finite."""
        ranked = rank(logits, self.top_k)
        distance = logits[ranked].astype(np.float64) - float(logits[ranked[0]])
        with np.errstate(over="ignore"):
            # The likeliest weighs 1; what overflows to minus infinity weighs 0.
            weights = exp((distance / self.temperature).astype(np.float32))
        cumulative = np.cumsum(weights, dtype=np.float64)
        kept = int(np.searchsorted(cumulative, self.top_p * cumulative[-1])) + 1
        light = np.flatnonzero(weights[:kept] < np.float64(self.min_p))
        kept = int(light[0]) if light.size else min(kept, len(ranked))
        return Candidates(ranked[:kept], cumulative[:kept])
