"""A witness of one generation: it stands before the sampler, sees every logit, and writes the receipt.

It changes nothing of what the sampler does. Digests of ids are taken over their values as little-endian
32-bit numbers, one after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np

from engine.kernels.canon import Floats
from engine.receipt import (
    STEP_DIGITS,
    ComputedBy,
    ModelUsed,
    Output,
    PromptPolicies,
    PromptUsed,
    Receipt,
    Settings,
)
from engine.runtime import Completion, GenerationOptions
from engine.sampling import Sampler


class Witness:
    """A `Sampler` that samples with another one and keeps the last logits that it was given."""

    def __init__(self, sampler: Sampler, logits: Floats | None = None) -> None:
        self._sampler = sampler
        self._logits = logits

    def sample(self, logits: Floats) -> int:
        """The other sampler's choice."""
        self._logits = logits.copy()
        return self._sampler.sample(logits)

    def clone(self) -> Self:
        """An independent copy."""
        return type(self)(self._sampler.clone(), self._logits)

    def restore(self, saved: Self) -> None:
        """Take over the state of an earlier clone."""
        self._sampler.restore(saved._sampler)
        self._logits = saved._logits

    def describe(self) -> dict[str, Any]:
        """The other sampler's settings."""
        return self._sampler.describe()

    @property
    def logits_sha256(self) -> str:
        """SHA-256 of the last logits as little-endian float32."""
        assert self._logits is not None
        return hashlib.sha256(self._logits.astype("<f4").tobytes()).hexdigest()

    def receipt(
        self,
        model: ModelUsed,
        computed_by: ComputedBy,
        policies: PromptPolicies,
        prompt: Sequence[int],
        options: GenerationOptions,
        completion: Completion,
    ) -> Receipt:
        """The receipt of the generation that this sampler was used for."""
        digests = StepDigests(prompt)
        output = Output(
            finish=completion.finish,
            stop_token=completion.stop_token,
            tokens=len(completion.tokens),
            sha256=digest_of(completion.tokens),
            steps="".join(map(digests.step, completion.tokens)),
            logits_sha256=self.logits_sha256,
        )
        return Receipt(
            model,
            PromptUsed(**asdict(policies), tokens=len(prompt), sha256=digest_of(prompt)),
            Settings(options.max_tokens, options.stop_tokens, self.describe()),
            output,
            computed_by,
        )


class StepDigests:
    """One short digest a token, of the prompt and all tokens up to that one.

    They begin with the prompt so that only who has it can try out which tokens they stand for.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._hash = hashlib.sha256(_bytes_of(prompt))

    def step(self, token: int) -> str:
        """The first hex digits of the digest with one token more."""
        self._hash.update(_bytes_of([token]))
        return self._hash.hexdigest()[:STEP_DIGITS]


def digest_of(tokens: Sequence[int]) -> str:
    """SHA-256 of token ids."""
    return hashlib.sha256(_bytes_of(tokens)).hexdigest()


def _bytes_of(tokens: Sequence[int]) -> bytes:
    return np.array(tokens, "<u4").tobytes()
