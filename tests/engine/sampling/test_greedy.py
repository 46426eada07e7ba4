from __future__ import annotations

import math

import numpy as np
import pytest

from engine.errors import EngineFaultError
from engine.kernels.canon import Floats
from engine.sampling import (
    ChainSampler,
    ChainSettings,
    GreedySampler,
    ReferenceSampler,
    Sampler,
    SwiftSampler,
    greedy,
)
from tests.engine.sampling.draws import SEED, drawn, row


def test_greedy_takes_the_lowest_of_the_best() -> None:
    """Ties go to the lowest id; minus infinity means not allowed."""
    assert greedy(row(1, 3, 3, 2)) == 1
    assert greedy(row(-math.inf, -5, -math.inf)) == 1
    assert greedy(row(0, -0.0)) == 0


def test_greedy_sampler_has_no_state() -> None:
    """A clone is as good as the original."""
    sampler = GreedySampler()
    copy = sampler.clone()
    copy.restore(sampler)
    assert drawn(copy, row(0, 2, 1)) == [1] * 5
    assert sampler.describe() == {"mode": "greedy"}


@pytest.mark.parametrize("kind", ["greedy", "reference", "reference-all", "swift", "chain", "chain-bias"])
@pytest.mark.parametrize(
    "logits",
    [row(1, math.nan, 2), row(1, math.inf, 0), row(-math.inf, -math.inf, -math.inf)],
    ids=["nan", "infinite", "all-masked"],
)
def test_logits_without_a_largest_value_are_a_fault(kind: str, logits: Floats) -> None:
    """No sampler invents an answer, and a failed draw uses nothing of the generator."""

    def sampler() -> Sampler:
        samplers: dict[str, Sampler] = {
            "greedy": GreedySampler(),
            "reference": ReferenceSampler(SEED),
            "reference-all": ReferenceSampler(SEED, top_k=0),
            "swift": SwiftSampler(SEED, 3),
            "chain": ChainSampler(ChainSettings(SEED)),
            "chain-bias": ChainSampler(
                ChainSettings(SEED, frequency_penalty=2, logit_bias={0: 100, 2: -100})
            ),
        }
        return samplers[kind]

    tried, fresh = sampler(), sampler()
    with pytest.raises(EngineFaultError, match="no finite largest value"):
        tried.sample(logits)
    flat = np.zeros(3, np.float32)
    assert drawn(tried, flat, 20) == drawn(fresh, flat, 20)


def test_no_logits_are_a_fault() -> None:
    """There is nothing to choose from."""
    with pytest.raises(EngineFaultError):
        greedy(row())
