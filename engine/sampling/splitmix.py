"""The generator of the `reference` and `chain` samplers."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import InvalidInputError

_MASK = (1 << 64) - 1


@dataclass
class SplitMix64:
    """Steele, Lea and Flood's SplitMix64 (2014), a 64-bit generator with one word of state."""

    state: int

    def __post_init__(self) -> None:
        if not 0 <= self.state <= _MASK:
            raise InvalidInputError(f"seed {self.state} is not an unsigned 64-bit number", "seed")

    def next(self) -> int:
        """The next 64-bit output."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def fraction(self) -> float:
        """The upper 32 bits of the next output as a number from 0 to below 1."""
        return (self.next() >> 32) / 2**32
