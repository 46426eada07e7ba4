"""The generator of the `swift` sampler: C++'s `std::mt19937`, and Microsoft's way to a double from it.

NumPy's `RandomState` holds the same generator, seeded the same way, and its outputs are frozen; nothing
else of it is used.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from engine.errors import InvalidInputError

_SEEDS = 1 << 32


class MersenneTwister:
    """MT19937 (Matsumoto and Nishimura, 1998), seeded by one unsigned 32-bit number."""

    def __init__(self, seed: int) -> None:
        if not 0 <= seed < _SEEDS:
            raise InvalidInputError(f"seed {seed} is not an unsigned 32-bit number", "seed")
        self._generator = np.random.RandomState(seed)

    def next(self) -> int:
        """The next 32-bit output."""
        return int(self._generator.randint(0, _SEEDS, dtype=np.uint32))

    def double(self) -> float:
        """A number from 0 to below 1 of 53 bits, from two outputs, the first of which is the lower half.

        This is `std::generate_canonical<double, 53>` as C++26 has it (P0952R2), which Microsoft's library
        follows since Visual Studio 2022 17.12: floor((first + second × 2^32) ÷ 2^11) ÷ 2^53. Before, it
        rounded the quotient by 2^64 to nearest, which could give 1.
        """
        low = self.next()
        high = self.next()
        return float((high << 32 | low) >> 11) / 2**53

    def clone(self) -> Self:
        """A copy that is where this one is."""
        copy = type(self)(0)
        copy.restore(self)
        return copy

    def restore(self, saved: Self) -> None:
        """Go to where `saved` is."""
        self._generator.set_state(saved._generator.get_state())
