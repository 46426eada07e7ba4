from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInputError
from engine.sampling import ReferenceSampler, SplitMix64
from tests.engine.sampling.draws import DRAWS, SEED, drawn, row


def test_draws_among_equal_logits() -> None:
    """Four equal ids split [0, 1) evenly in the order of their ids: floor(4 u)."""
    sampler = ReferenceSampler(SEED, temperature=0.7, top_k=0, top_p=1.0)
    assert drawn(sampler, np.full(4, -3, np.float32)) == [1, 0, 2, 0, 3]


def test_draws_with_weights_worked_by_hand() -> None:
    """Weights 1, 1/2, 1/4 by rank: with a mass of 1.75 the draws fall at 0.61, 0.30, 0.93, 0.44, 1.56."""
    logits = row(math.log(0.25), 0, math.log(0.5), -50)
    sampler = ReferenceSampler(SEED, top_k=3, top_p=1.0)
    assert drawn(sampler, logits) == [1, 1, 1, 1, 0]
    # Seed 0 begins with 0xE220A839 / 2^32 = 0.8833, which falls at 1.546.
    assert drawn(ReferenceSampler(0, top_k=3, top_p=1.0), logits, 1) == [0]
    # Temperature 2 takes square roots: weights 1, 0.707, 0.5; 2.207 u = 0.77, 0.38, 1.17, 0.55, 1.96.
    warm = ReferenceSampler(SEED, temperature=2.0, top_k=3, top_p=1.0)
    assert drawn(warm, logits) == [1, 1, 2, 1, 0]


def test_a_draw_on_a_boundary_takes_the_next_id() -> None:
    """This seed's first output is 2^63: u = 0.5 falls between two equal ids, and intervals are half-open."""
    seed = 0x2FEDF1EFCE1D5545
    assert SplitMix64(seed).next() == 1 << 63
    assert drawn(ReferenceSampler(seed, top_p=1.0), row(4, 4), 1) == [1]


def test_the_nucleus_is_the_shortest_prefix_that_reaches_its_mass() -> None:
    """Of 1, 1/2, 1/4, 1/4 (mass 2) half is reached by one, just over half by two."""
    logits = row(math.log(0.25), math.log(0.25), 0, math.log(0.5))
    one = ReferenceSampler(SEED, top_k=0, top_p=0.5)
    assert drawn(one, logits) == [2] * 5
    two = ReferenceSampler(SEED, top_k=0, top_p=0.51)  # 1.5 u = 0.53, 0.26, 0.80, 0.37, 1.33
    assert drawn(two, logits) == [2, 2, 2, 2, 3]
    three = ReferenceSampler(SEED, top_k=0, top_p=0.76)  # 1.75 u = 0.61, 0.30, 0.93, 0.44, 1.56
    assert drawn(three, logits) == [2, 2, 2, 2, 0]
    everything = ReferenceSampler(SEED, top_k=0, top_p=1.0)  # 2 u = 0.70, 0.35, 1.06, 0.50, 1.78
    assert drawn(everything, logits) == [2, 2, 3, 2, 1]


def test_the_nucleus_is_a_share_of_the_top_k() -> None:
    """Top-k comes first: with two of four equal ids left, 0.5 is one of them."""
    equal = np.zeros(4, np.float32)
    assert drawn(ReferenceSampler(SEED, top_k=2, top_p=0.5), equal) == [0] * 5
    assert drawn(ReferenceSampler(SEED, top_k=2, top_p=1.0), equal) == [0, 0, 1, 0, 1]


@pytest.mark.parametrize("top_k", [1, 2])
def test_masked_ids_are_never_drawn(top_k: int) -> None:
    """Even when fewer ids are allowed than top-k keeps."""
    logits = np.full(6, -math.inf, np.float32)
    logits[4] = -7
    assert set(drawn(ReferenceSampler(SEED, top_k=top_k, top_p=1.0), logits, 20)) == {4}
    logits[5] = -7
    assert set(drawn(ReferenceSampler(SEED, top_k=0, top_p=1.0), logits, 20)) == {4, 5}


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 5e-324])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    """Distances overflow to minus infinity, whose weight is 0; equal logits stay equal."""
    sampler = ReferenceSampler(SEED, temperature=temperature, top_p=1.0)
    assert drawn(sampler, row(1, 1.001, -3, 0)) == [1] * 5
    tied = ReferenceSampler(SEED, temperature=temperature, top_p=1.0)
    assert drawn(tied, row(-3, 5, 5, 0)) == [1, 1, 2, 1, 2]


def test_huge_temperatures_are_uniform() -> None:
    """All weights become 1."""
    sampler = ReferenceSampler(SEED, temperature=1e300, top_k=0, top_p=1.0)
    assert drawn(sampler, row(-30, 40, 0, 9)) == [3, 1, 2, 1, 0]  # floor(4 u) along the ranks 1, 3, 2, 0


def test_a_tiny_nucleus_is_greedy() -> None:
    """At least one id is always kept."""
    assert drawn(ReferenceSampler(SEED, top_p=1e-9), row(0, 1, 0.9)) == [1] * 5


def test_a_single_candidate_still_uses_a_draw() -> None:
    """So the position in the sequence depends on the number of tokens alone."""
    sampler = ReferenceSampler(SEED, top_k=0, top_p=1.0)
    assert drawn(sampler, row(-math.inf, 1), 2) == [1, 1]
    equal = np.zeros(1024, np.float32)
    assert drawn(sampler, equal, 3) == [int(draw * 1024) for draw in DRAWS[2:]]


def test_clones_draw_the_same_and_restores_take_draws_back() -> None:
    """A clone is independent of what the original does afterwards."""
    sampler = ReferenceSampler(SEED, 0.9, 0, 1.0)
    equal = np.zeros(4096, np.float32)
    expected = [int(draw * 4096) for draw in DRAWS]
    assert drawn(sampler, equal, 2) == expected[:2]
    saved = sampler.clone()
    assert drawn(sampler, equal, 3) == expected[2:]
    assert drawn(saved.clone(), equal, 3) == expected[2:]
    sampler.restore(saved)
    assert drawn(sampler, equal, 3) == expected[2:]
    assert drawn(saved, equal, 3) == expected[2:]


def test_settings_are_described() -> None:
    """As the completion record has them."""
    assert ReferenceSampler(5, 0.5, 7, 0.25).describe() == {
        "mode": "reference",
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.25,
        "seed": 5,
        "rng": "splitmix64",
    }


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.0001}, "top_p"),
        ({"top_p": math.nan}, "top_p"),
    ],
)
def test_settings_outside_their_range_are_refused(options: dict[str, float], field: str) -> None:
    """With the field's name for the edges to map."""
    with pytest.raises(InvalidInputError) as caught:
        ReferenceSampler(**({"seed": 1} | options))  # type: ignore[arg-type]
    assert caught.value.field == field


@given(
    st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=30),
    st.integers(0, 2**64 - 1),
    st.floats(1e-3, 1e3),
    st.integers(0, 32),
    st.floats(1e-6, 1),
)
def test_every_draw_is_a_ranked_id(
    logits: list[float], seed: int, temperature: float, top_k: int, top_p: float
) -> None:
    """Whatever the settings, the id is among the top-k and at least as likely as any id outside them."""
    values = np.array(logits, np.float32)
    token = ReferenceSampler(seed, temperature, top_k, top_p).sample(values)
    better = sum(1 for other, logit in enumerate(logits) if (-logit, other) < (-logits[token], token))
    assert better < (top_k or len(logits))
