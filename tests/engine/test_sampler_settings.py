from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from engine.errors import InvalidInputError
from engine.sampler_settings import sampler_from
from engine.sampling import (
    ChainSampler,
    ChainSettings,
    GreedySampler,
    ReferenceSampler,
    Sampler,
    SwiftSampler,
)

SIZE = 50
PROMPT = [1, 2, 3]
SETTINGS = ChainSettings(2**64 - 1, 0.7, 0, 0.9, 0.01, 1.5, -0.5, 1.2, {0: -100.0, 7: 2.5, 49: 1.0})
SAMPLERS: dict[str, Sampler] = {
    "greedy": GreedySampler(),
    "reference": ReferenceSampler(2**64 - 1, 0.7, 0, 1.0),
    "swift": SwiftSampler(2**32 - 2, SIZE),
    "chain": ChainSampler(SETTINGS, PROMPT),
    "chain, greedy": ChainSampler(ChainSettings(0, 0.0), PROMPT),
}
REFERENCE: dict[str, Any] = ReferenceSampler(5).describe()
CHAIN: dict[str, Any] = ChainSampler(SETTINGS).describe()


def drawn(sampler: Sampler) -> list[int]:
    """What a sampler makes of the same logits again and again."""
    generator = np.random.default_rng(1)
    return [sampler.sample(generator.standard_normal(SIZE).astype(np.float32)) for _ in range(40)]


@pytest.mark.parametrize("name", SAMPLERS)
def test_descriptions_are_enough(name: str) -> None:
    """A description that went through JSON makes a sampler that draws the same tokens."""
    sampler = SAMPLERS[name]
    description = json.loads(json.dumps(sampler.describe()))
    again = sampler_from(description, prompt=PROMPT, vocabulary_size=SIZE)
    assert type(again) is type(sampler)
    assert drawn(again) == drawn(sampler.clone())


def test_the_prompt_counts() -> None:
    """The repetition penalty of `chain` sees the prompt, so another prompt draws other tokens."""
    description = ChainSampler(ChainSettings(3, 1.0, 0, 1.0, repetition_penalty=2.0)).describe()
    same, other = (drawn(sampler_from(description, prompt=prompt)) for prompt in (PROMPT, range(40)))
    assert same != other


def test_whole_numbers_may_lose_their_point() -> None:
    """JSON tools that write 1.0 as 1 do not change the sampler."""
    description = {**REFERENCE, "temperature": 1, "top_p": 1}
    assert sampler_from(description).describe() == {**REFERENCE, "temperature": 1.0, "top_p": 1.0}


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"mode": "lottery"},
        {"mode": ["greedy"]},
        {"mode": "greedy", "seed": 1},
        {"mode": "reference"},
        {**REFERENCE, "more": 1},
        {**REFERENCE, "rng": "mt19937"},
        {**REFERENCE, "seed": -1},
        {**REFERENCE, "seed": 2**64},
        {**REFERENCE, "seed": 1.0},
        {**REFERENCE, "seed": True},
        {**REFERENCE, "seed": None},
        {**REFERENCE, "top_k": 1.5},
        {**REFERENCE, "top_k": -1},
        {**REFERENCE, "temperature": 0},
        {**REFERENCE, "temperature": "1"},
        {**REFERENCE, "temperature": 10**400},
        {**REFERENCE, "top_p": 1.1},
        {"mode": "swift", "seed": 5},
        {**SwiftSampler(5, SIZE).describe(), "temperature": 0.5},
        {**SwiftSampler(5, SIZE).describe(), "seed": 2**32 - 1},
        {**CHAIN, "min_p": 2},
        {**CHAIN, "logit_bias": None},
        {**CHAIN, "logit_bias": {"x": 1.0}},
        {**CHAIN, "logit_bias": {"01": 1.0}},
        {**CHAIN, "logit_bias": {"-1": 1.0}},
        {**CHAIN, "logit_bias": {"4294967296": 1.0}},
        {**CHAIN, "logit_bias": {"1": None}},
        {**CHAIN, "logit_bias": {"1": 101}},
    ],
)
def test_refused(description: dict[str, Any]) -> None:
    """What no sampler says of itself makes none."""
    with pytest.raises(InvalidInputError):
        sampler_from(description)
