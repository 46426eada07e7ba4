"""The reproducible `reference` sampler of the command line, with a generator of its own."""

from __future__ import annotations

from typing import Any, Self

from engine.kernels.canon import Floats
from engine.sampling.selection import Selection
from engine.sampling.splitmix import SplitMix64


class ReferenceSampler:
    """Rank, temperature, top-k, nucleus, then one draw from the upper 32 bits of SplitMix64.

    `temperature` > 0; `top_k` 0 keeps the whole vocabulary; `top_p` in (0, 1]; `seed` 64 bits. Raises
    InvalidInputError for other values.
    """

    def __init__(self, seed: int, temperature: float = 1.0, top_k: int = 20, top_p: float = 0.95) -> None:
        self.seed = seed
        self.selection = Selection(temperature, top_k, top_p)
        self._generator = SplitMix64(seed)

    def sample(self, logits: Floats) -> int:
        """The drawn id; exactly one output of the generator is used."""
        return self.selection.candidates(logits).draw(self._generator.fraction())

    def clone(self) -> Self:
        """A copy with the generator where it is."""
        selection = self.selection
        copy = type(self)(self.seed, selection.temperature, selection.top_k, selection.top_p)
        copy.restore(self)
        return copy

    def restore(self, saved: Self) -> None:
        """Set the generator back to where `saved` has it."""
        self._generator.state = saved._generator.state

    def describe(self) -> dict[str, Any]:
        """Mode, options, seed and generator."""
        return {
            "mode": "reference",
            "temperature": self.selection.temperature,
            "top_k": self.selection.top_k,
            "top_p": self.selection.top_p,
            "seed": self.seed,
            "rng": "splitmix64",
        }
