"""The `swift` sampler: the fixed chain that SwiftBonsai's publisher engine runs on Windows.

It does in float32 what llama.cpp's chain of top-k, top-p, temperature and dist does, with one exception:
e**x is the contract's, not a C library's, so that draws are the same on every machine.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from engine.errors import InvalidInputError
from engine.kernels.canon import Floats, exp
from engine.sampling.mersenne_twister import MersenneTwister
from engine.sampling.ranking import rank

TOP_K = 20
TOP_P = 0.95
ENTROPY_SEED = (1 << 32) - 1


class SwiftSampler:
    """Top-k 20, top-p 0.95 with at least one kept, temperature 1, and one MSVC double of MT19937 a token.

    `seed` is an unsigned 32-bit number other than 2^32 - 1, with which llama.cpp asks for a random seed;
    `vocabulary_size` is the number of logits, exactly. The rules are those of llama.cpp's top_k, top_p and
    dist samplers of 2026; where those leave the order of equal logits to the library, the lowest id is
    first.
    """

    def __init__(self, seed: int, vocabulary_size: int) -> None:
        if seed == ENTROPY_SEED:
            raise InvalidInputError(f"seed {seed} stands for a random seed, which none can repeat", "seed")
        if vocabulary_size < 1:
            raise InvalidInputError(f"a vocabulary of {vocabulary_size} tokens", "vocabulary_size")
        self.seed = seed
        self.vocabulary_size = vocabulary_size
        self._generator = MersenneTwister(seed)

    def sample(self, logits: Floats) -> int:
        """The drawn id; exactly two outputs of the generator are used, even for a single candidate.

        Raises InvalidInputError for another number of logits, EngineFaultError if none is finite.
        """
        if logits.size != self.vocabulary_size:
            raise InvalidInputError(
                f"{logits.size} logits, but the sampler is for a vocabulary of {self.vocabulary_size}"
            )
        ids = rank(logits, TOP_K)
        weights = exp(logits[ids] - logits[ids[0]])
        probabilities = weights / np.add.accumulate(weights)[-1]
        mass = np.add.accumulate(probabilities)  # float32, first to last
        kept = min(int(np.count_nonzero(mass < np.float32(TOP_P))) + 1, len(ids))
        cumulative = np.cumsum(weights[:kept], dtype=np.float64)
        target = cumulative[-1] * self._generator.double()
        return int(ids[np.searchsorted(cumulative, target, side="left")])

    def clone(self) -> Self:
        """A copy with the generator where it is."""
        copy = type(self)(self.seed, self.vocabulary_size)
        copy.restore(self)
        return copy

    def restore(self, saved: Self) -> None:
        """Set the generator back to where `saved` has it."""
        self._generator.restore(saved._generator)

    def describe(self) -> dict[str, Any]:
        """Mode, options, seed and generator."""
        return {
            "mode": "swift",
            "temperature": 1.0,
            "top_k": TOP_K,
            "top_p": TOP_P,
            "seed": self.seed,
            "rng": "mt19937-msvc",
        }
