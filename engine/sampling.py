"""Choosing the next token from logits: greedy, and the reproducible `reference` sampler.

Samplers are cloneable, so that a failed request can take its draws back. Ties between equal logits always
go to the lowest id. A logit of minus infinity means "not allowed"; NaN and plus infinity are engine faults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineFaultError, InvalidInputError
from engine.kernels.canon import Floats, exp

_MASK = (1 << 64) - 1


class Sampler(Protocol):
    """Chooses tokens; may hold state (a random generator) that `clone` and `restore` carry."""

    def sample(self, logits: Floats) -> int:
        """The chosen id, from float32 logits [vocabulary]."""

    def clone(self) -> Self:
        """An independent copy that will draw the same."""

    def restore(self, saved: Self) -> None:
        """Take over the state of an earlier clone."""

    def describe(self) -> dict[str, Any]:
        """The effective settings as a JSON object."""


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


@dataclass
class SplitMix64:
    """Steele, Lea and Flood's SplitMix64 (2014), a 64-bit generator with one word of state."""

    state: int

    def next(self) -> int:
        """The next 64-bit output."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)


class ReferenceSampler:
    """Rank, temperature, top-k, nucleus, then one draw from the upper 32 bits of SplitMix64.

    `temperature` > 0; `top_k` 0 keeps the whole vocabulary; `top_p` in (0, 1]; `seed` 64 bits.
    Weights are exp((logit - largest) / temperature) with the contract's own exp; the nucleus is the
    shortest ranked prefix whose mass reaches top_p of the top-k mass.
    """

    def __init__(self, seed: int, temperature: float = 1.0, top_k: int = 20, top_p: float = 0.95) -> None:
        if not 0 <= seed <= _MASK:
            raise InvalidInputError(f"seed {seed} is not an unsigned 64-bit number", "seed")
        if not (math.isfinite(temperature) and temperature > 0):
            raise InvalidInputError(f"temperature {temperature} is not a positive number", "temperature")
        if top_k < 0:
            raise InvalidInputError(f"top-k {top_k} is negative", "top_k")
        if not 0 < top_p <= 1:
            raise InvalidInputError(f"top-p {top_p} is not in (0, 1]", "top_p")
        self.seed = seed
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self._generator = SplitMix64(seed)

    def sample(self, logits: Floats) -> int:
        """The drawn id; exactly one output of the generator is used."""
        ranked = rank(logits, self.top_k)
        distance = logits[ranked].astype(np.float64) - float(logits[ranked[0]])
        with np.errstate(over="ignore"):
            scaled = (distance / self.temperature).astype(np.float32)
            cumulative = np.cumsum(exp(scaled), dtype=np.float64)
        kept = int(np.searchsorted(cumulative, self.top_p * cumulative[-1])) + 1
        kept = min(kept, len(ranked))
        threshold = (self._generator.next() >> 32) / 2**32 * cumulative[kept - 1]
        return int(ranked[np.searchsorted(cumulative[:kept], threshold, side="right")])

    def clone(self) -> Self:
        """A copy with the generator where it is."""
        copy = type(self)(self.seed, self.temperature, self.top_k, self.top_p)
        copy.restore(self)
        return copy

    def restore(self, saved: Self) -> None:
        """Set the generator back to where `saved` has it."""
        self._generator.state = saved._generator.state

    def describe(self) -> dict[str, Any]:
        """Mode, options, seed and generator."""
        return {
            "mode": "reference",
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
            "rng": "splitmix64",
        }


def rank(logits: Floats, count: int) -> NDArray[np.intp]:
    """Ids of the `count` highest logits (0: all), highest first, equal ones by id."""
    greedy(logits)  # raises when there is nothing to rank
    if 0 < count < logits.size:
        ids = np.flatnonzero(logits >= _below_top(logits, count))
    else:
        ids = np.arange(logits.size)
    order: NDArray[np.intp] = ids[np.argsort(-logits[ids], kind="stable")]
    return order[:count] if count else order


def _below_top(logits: Floats, count: int) -> np.float32:
    """A value that at least `count` logits reach, close to the lowest of them.

    The `count`-th largest maximum of small blocks will do, and costs one pass where a partition of a large
    vocabulary costs as much as the rest of a step.
    """
    block = 256
    whole = logits.size // block * block
    tops = logits[:whole].reshape(-1, block).max(axis=1)
    if len(tops) <= count:
        tops = logits
    return np.float32(np.partition(tops, len(tops) - count)[len(tops) - count])
