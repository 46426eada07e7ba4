"""What a request adds to logits before anything is chosen: its biases, and penalties for repeating.

Penalties look at tokens: the prompt's and those drawn since, which the caller reports here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from engine.errors import InvalidInputError
from engine.kernels.canon import Floats
from engine.sampling.ranking import Ids

MAX_BIAS = 100.0
MAX_PENALTY = 2.0
MIN_REPETITION = 0.01
MAX_REPETITION = 2.0


@dataclass(frozen=True)
class Adjustment:
    """Biases by token id, each from -100 to 100, and the three penalties.

    `presence` and `frequency`, from -2 to 2, are subtracted from the logits of tokens that were drawn, once
    and once a draw; `repetition`, from 0.01 to 2, divides positive logits and multiplies others of tokens
    that were drawn or stand in the prompt. Raises InvalidInputError for other values.
    """

    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("presence", self.presence), ("frequency", self.frequency)):
            if not -MAX_PENALTY <= value <= MAX_PENALTY:
                raise InvalidInputError(f"{name} penalty {value} is not in [-2, 2]", f"{name}_penalty")
        if not MIN_REPETITION <= self.repetition <= MAX_REPETITION:
            raise InvalidInputError(
                f"repetition penalty {self.repetition} is not in [0.01, 2]", "repetition_penalty"
            )
        for token, bias in self.bias.items():
            if token < 0 or not -MAX_BIAS <= bias <= MAX_BIAS:
                raise InvalidInputError(
                    f"logit bias {bias} of token id {token}: expected an id from 0, a bias in [-100, 100]",
                    "logit_bias",
                )


class AdjustedLogits:
    """Applies one adjustment along one answer, whose tokens it counts."""

    def __init__(self, adjustment: Adjustment, prompt: Iterable[int]) -> None:
        self._adjustment = adjustment
        self._ids = np.array(list(adjustment.bias), np.intp)
        self._biases = np.array(list(adjustment.bias.values()), np.float64)
        self._penalises = adjustment.repetition != 1 or adjustment.presence or adjustment.frequency
        # Ids with the number of their draws. The prompt counts for repetition alone, so as zero draws.
        self._counts = dict.fromkeys(prompt if adjustment.repetition != 1 else (), 0)

    def of(self, logits: Floats) -> Floats:
        """Adjusted logits [vocabulary] in binary32, the same array if there is nothing to adjust.

        Computed in binary64: the bias first, then repetition, then frequency and presence; rounded after
        the bias and at the end. Raises InvalidInputError for a token outside the vocabulary.
        """
        if not self._ids.size and not (self._penalises and self._counts):
            return logits
        adjusted = logits.copy()
        if self._ids.size:
            _check_ids(self._ids, logits.size, "logit_bias")
            adjusted[self._ids] += self._biases
        if self._penalises and self._counts:
            self._penalise(adjusted)
        return adjusted

    def _penalise(self, logits: Floats) -> None:
        ids = np.fromiter(self._counts, np.intp, len(self._counts))
        _check_ids(ids, logits.size, "prompt")
        counts = np.fromiter(self._counts.values(), np.float64, len(self._counts))
        values = logits[ids].astype(np.float64)
        repetition = self._adjustment.repetition
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= counts * self._adjustment.frequency + (counts > 0) * self._adjustment.presence
        with np.errstate(over="ignore"):  # beyond binary32 is infinite, and infinite is an engine fault
            logits[ids] = values

    def drew(self, token: int) -> None:
        """Count a drawn token."""
        if self._penalises:
            self._counts[token] = self._counts.get(token, 0) + 1

    def clone(self) -> Self:
        """An independent copy."""
        copy = type(self)(self._adjustment, ())
        copy.restore(self)
        return copy

    def restore(self, saved: Self) -> None:
        """Count as `saved` does."""
        self._counts = dict(saved._counts)


def _check_ids(ids: Ids, vocabulary_size: int, name: str) -> None:
    for token in (int(ids.min()), int(ids.max())):
        if not 0 <= token < vocabulary_size:
            raise InvalidInputError(
                f"{name}: token id {token} is outside the vocabulary of {vocabulary_size}", name
            )
