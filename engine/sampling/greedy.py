"""The most likely token: what greedy decoding takes, and what every ranking begins with."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from engine.errors import EngineFaultError
from engine.kernels.canon import Floats


def greedy(logits: Floats) -> int:
    """The id of the highest logit, the lowest such id. Raises EngineFaultError if there is none."""
    best = int(np.argmax(logits)) if logits.size else -1
    if best < 0 or not math.isfinite(logits[best]):
        raise EngineFaultError("the logits have no finite largest value")
    return best


class GreedySampler:
    """Always the most likely token."""

    def sample(self, logits: Floats) -> int:
        """The id of the highest logit."""
        return greedy(logits)

    def clone(self) -> Self:
        """Itself: there is no state."""
        return self

    def restore(self, saved: Self) -> None:
        """Nothing to take over."""

    def describe(self) -> dict[str, Any]:
        """The mode alone."""
        return {"mode": "greedy"}
