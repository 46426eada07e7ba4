"""The general `chain` sampler of the HTTP interface: adjustments, then the selection of `reference`, a draw.

With the default settings it draws what `reference` draws with the same seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from engine.kernels.canon import Floats
from engine.sampling.adjustment import AdjustedLogits, Adjustment
from engine.sampling.greedy import greedy
from engine.sampling.selection import Selection
from engine.sampling.splitmix import SplitMix64


@dataclass(frozen=True)
class ChainSettings:
    """What a request may ask for. `temperature` 0 takes the highest adjusted logit and draws nothing.

    Ranges are those of `Selection`, `Adjustment` and `SplitMix64`; ChainSampler checks them.
    """

    seed: int
    temperature: float = 1.0
    top_k: int = 20
    top_p: float = 0.95
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)


class ChainSampler:
    """Logit bias, penalties, temperature, top-k, nucleus, min-p, then one draw as `reference` draws.

    One sampler serves one answer: it counts the tokens it chose, and takes those of `prompt` for the
    repetition penalty. Raises InvalidInputError for settings out of range.
    """

    def __init__(self, settings: ChainSettings, prompt: Sequence[int] = ()) -> None:
        self.settings = settings
        self._selection = Selection(
            settings.temperature or 1.0, settings.top_k, settings.top_p, settings.min_p
        )
        adjustment = Adjustment(
            settings.presence_penalty,
            settings.frequency_penalty,
            settings.repetition_penalty,
            settings.logit_bias,
        )
        self._adjusted = AdjustedLogits(adjustment, prompt)
        self._generator = SplitMix64(settings.seed)

    def sample(self, logits: Floats) -> int:
        """The chosen id; one output of the generator is used, none at temperature 0."""
        adjusted = self._adjusted.of(logits)
        if self.settings.temperature == 0:
            token = greedy(adjusted)
        else:
            token = self._selection.candidates(adjusted).draw(self._generator.fraction())
        self._adjusted.drew(token)
        return token

    def clone(self) -> Self:
        """A copy with the generator and the counts where they are."""
        copy = type(self)(self.settings)
        copy.restore(self)
        return copy

    def restore(self, saved: Self) -> None:
        """Set generator and counts back to where `saved` has them."""
        self._generator.state = saved._generator.state
        self._adjusted.restore(saved._adjusted)

    def describe(self) -> dict[str, Any]:
        """Mode, settings, seed and generator."""
        settings = self.settings
        return {
            "mode": "chain",
            "temperature": settings.temperature,
            "top_k": settings.top_k,
            "top_p": settings.top_p,
            "min_p": settings.min_p,
            "presence_penalty": settings.presence_penalty,
            "frequency_penalty": settings.frequency_penalty,
            "repetition_penalty": settings.repetition_penalty,
            "logit_bias": {str(token): bias for token, bias in settings.logit_bias.items()},
            "seed": settings.seed,
            "rng": "splitmix64",
        }
