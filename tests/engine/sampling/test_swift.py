from __future__ import annotations

import math

import numpy as np
import pytest

from engine.errors import InvalidInputError
from engine.sampling import MersenneTwister, SwiftSampler
from tests.engine.sampling.draws import drawn, row

# Its doubles are 0.1355, 0.8350, 0.9689, 0.2210, 0.3082, 0.5472: see the tests of the generator.
SEED = 5489


def test_draws_among_equal_logits() -> None:
    """Four equal ids split the line evenly: 4 u = 0.54, 3.34, 3.88, 0.88, 1.23, 2.19."""
    assert drawn(SwiftSampler(SEED, 4), np.full(4, -3, np.float32), 6) == [0, 3, 3, 0, 1, 2]


def test_draws_with_weights_worked_by_hand() -> None:
    """Weights 1, 1/2, 1/4 by rank; of 1.75 the draws fall at 0.24, 1.46, 1.70, 0.39, 0.54, 0.96."""
    logits = row(math.log(0.25), 0, math.log(0.5))
    assert drawn(SwiftSampler(SEED, 3), logits, 6) == [1, 2, 0, 1, 1, 1]


def test_the_nucleus_is_the_shortest_prefix_that_reaches_its_mass() -> None:
    """Beside 1, e^-3 = 0.0498 is not needed for 0.95 (1 is 0.9526 of both), e^-2.9 = 0.0550 is (0.9478).

    The third draw, 0.9689 of 1.0550, falls at 1.0222: into the second id if it was kept.
    """
    assert drawn(SwiftSampler(SEED, 2), row(0, -3), 6) == [0] * 6
    assert drawn(SwiftSampler(SEED, 2), row(0, -2.9), 6) == [0, 0, 1, 0, 0, 0]


def test_twenty_candidates_at_most() -> None:
    """Of a thousand equal ids the first twenty, less what the nucleus leaves out."""
    found = set(drawn(SwiftSampler(3, 1000), np.zeros(1000, np.float32), 400))
    assert set(range(18)) <= found <= set(range(20))


def test_one_candidate_still_uses_a_draw() -> None:
    """So the position in the sequence depends on the number of tokens alone."""
    sampler = SwiftSampler(SEED, 4)
    assert drawn(sampler, row(-math.inf, -math.inf, 7, -math.inf), 2) == [2, 2]
    assert drawn(sampler, np.zeros(4, np.float32), 4) == [3, 0, 1, 2]
    assert drawn(SwiftSampler(SEED, 1), row(-5)) == [0] * 5


@pytest.mark.parametrize(("double", "token"), [(0.0, 0), (0.5, 0), (math.nextafter(0.5, 1), 1)])
def test_a_draw_on_a_boundary_takes_the_earlier_id(
    monkeypatch: pytest.MonkeyPatch, double: float, token: int
) -> None:
    """The first id whose running sum reaches the target, as llama.cpp compares them."""
    monkeypatch.setattr(MersenneTwister, "double", lambda _: double)
    assert SwiftSampler(1, 2).sample(row(4, 4)) == token


def test_masked_ids_are_never_drawn() -> None:
    """Even though fewer than twenty are left."""
    logits = np.full(50, -math.inf, np.float32)
    logits[[30, 40]] = -2
    assert set(drawn(SwiftSampler(9, 50), logits, 100)) == {30, 40}


@pytest.mark.parametrize("seed", [2**32 - 1, 2**32, -1])
def test_seeds_that_cannot_be_repeated_are_refused(seed: int) -> None:
    """llama.cpp takes 2^32 - 1 for "any seed"; the number below it is a seed."""
    with pytest.raises(InvalidInputError) as caught:
        SwiftSampler(seed, 4)
    assert caught.value.field == "seed"
    SwiftSampler(2**32 - 2, 4)


@pytest.mark.parametrize("size", [0, 3, 5])
def test_another_vocabulary_is_refused(size: int) -> None:
    """Nothing is drawn for it."""
    sampler = SwiftSampler(SEED, 4)
    with pytest.raises(InvalidInputError, match=f"{size} logits, .* vocabulary of 4"):
        sampler.sample(np.zeros(size, np.float32))
    assert drawn(sampler, np.zeros(4, np.float32), 3) == [0, 3, 3]
    with pytest.raises(InvalidInputError):
        SwiftSampler(SEED, 0)


def test_clones_draw_the_same_and_restores_take_draws_back() -> None:
    """A clone is independent of what the original does afterwards."""
    sampler = SwiftSampler(SEED, 4)
    equal = np.zeros(4, np.float32)
    assert drawn(sampler, equal, 1) == [0]
    saved = sampler.clone()
    assert drawn(sampler, equal, 3) == [3, 3, 0]
    sampler.restore(saved)
    assert drawn(sampler, equal, 5) == drawn(saved, equal, 5) == [3, 3, 0, 1, 2]


def test_settings_are_described() -> None:
    """As a completion record has them."""
    assert SwiftSampler(7, 248_320).describe() == {
        "mode": "swift",
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
        "seed": 7,
        "rng": "mt19937-msvc",
    }
