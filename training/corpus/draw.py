"""Random choices that keep to one side of the line between training and evaluation.

Which values are held out is fixed by a hash of the value, so both sides agree without a list. Knows no topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeVar

T = TypeVar("T")
HELD_OUT_SHARE = 0.12
_ONSETS = "b d f g k l m n p r s t v z".split()
_VOWELS = "a e i o u".split()
_CODAS = ["", "", "", "n", "r", "s", "l", "k"]


def is_held_out(kind: str, *parts: object) -> bool:
    """Whether a value of a kind is kept from training: about 12 % are."""
    text = ":".join((kind, *map(str, parts)))
    return sha256(text.encode()).digest()[0] < 256 * HELD_OUT_SHARE


class Draw:
    """A seeded source of choices, of values that are all held out or all not."""

    def __init__(self, seed: str, *, held_out: bool = False) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def pick(self, values: Sequence[T]) -> T:
        """Any of the values, held out or not."""
        return self.random.choice(values)

    def number(self, low: int, high: int) -> int:
        """An integer from low to high, both included."""
        return self.random.randint(low, high)

    def own(self, kind: str, make: Callable[[], T], key: Callable[[T], object] = str) -> T:
        """What `make` gives, tried until it is of this draw's side."""
        while is_held_out(kind, key(value := make())) != self.held_out:
            pass
        return value

    def word(self) -> str:
        """A made-up word of two or three syllables, of this draw's side."""
        return self.own("word", self._word)

    def _word(self) -> str:
        parts = [self.pick(_ONSETS) + self.pick(_VOWELS) for _ in range(self.pick((2, 2, 3)))]
        return ("".join(parts) + self.pick(_CODAS)).capitalize()
