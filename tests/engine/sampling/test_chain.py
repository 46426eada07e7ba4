from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from engine.errors import EngineFaultError, InvalidInputError
from engine.sampling import ChainSampler, ChainSettings, ReferenceSampler, SplitMix64
from tests.engine.sampling.draws import DRAWS, SEED, drawn, row


def chain(*prompt: int, **settings: Any) -> ChainSampler:
    """A sampler of the published seed that draws from everything unless told otherwise."""
    return ChainSampler(ChainSettings(SEED, **({"top_k": 0, "top_p": 1.0} | settings)), prompt)


def greedy(*prompt: int, **settings: Any) -> ChainSampler:
    """A sampler that takes the highest adjusted logit."""
    return chain(*prompt, temperature=0, **settings)


def test_draws_worked_by_hand() -> None:
    """Weights 1, 1/2, 1/4 by rank: 1.75 u = 0.61, 0.30, 0.93, 0.44, 1.56."""
    assert drawn(chain(), row(math.log(0.25), 0, math.log(0.5), -50)) == [1, 1, 1, 1, 0]


def test_the_defaults_draw_what_the_reference_draws() -> None:
    """Both are the same stages over the same generator."""
    logits = np.random.default_rng(5).standard_normal(3000).astype(np.float32) * 4
    expected = drawn(ReferenceSampler(11), logits, 50)
    assert len(set(expected)) > 5
    assert drawn(ChainSampler(ChainSettings(11)), logits, 50) == expected
    warm = drawn(ReferenceSampler(11, 1.5, 7, 0.8), logits, 50)
    assert drawn(ChainSampler(ChainSettings(11, 1.5, 7, 0.8)), logits, 50) == warm


def test_min_p_is_a_share_of_the_likeliest() -> None:
    """Of 1, 1/2, 1/4 two weigh at least 0.4: 1.5 u = 0.53, 0.26, 0.80, 0.37, 1.33."""
    logits = row(math.log(0.25), 0, math.log(0.5))
    assert drawn(chain(min_p=0.4), logits) == [1, 1, 1, 1, 2]
    assert drawn(chain(min_p=0.6), logits) == [1] * 5


def test_min_p_looks_at_weights_after_temperature() -> None:
    """At temperature 2 the weights are 1, 0.707, 0.5, so that 0.6 keeps two.

    1.707 u = 0.60, 0.30, 0.91, 0.43, 1.52.
    """
    logits = row(math.log(0.25), 0, math.log(0.5))
    assert drawn(chain(temperature=2.0, min_p=0.6), logits) == [1, 1, 1, 1, 2]


def test_a_min_p_of_one_keeps_ties_with_the_likeliest() -> None:
    """Two equal ids: floor(2 u)."""
    assert drawn(chain(min_p=1.0), row(3, 2.999, 3)) == [0, 0, 2, 0, 2]


def test_min_p_comes_after_the_nucleus() -> None:
    """Of 1, 1/2, 1/4, 1/4 the nucleus of 0.51 is two, since one is only 0.5 of all; min-p keeps both.

    The other way round 1 would be 0.67 of the two that min-p left, and stand alone.
    """
    logits = row(0, math.log(0.5), math.log(0.25), math.log(0.25))
    assert drawn(chain(top_p=0.51, min_p=0.3), logits) == [0, 0, 0, 0, 1]  # 1.5 u, as above


def test_temperature_zero_takes_the_best_and_draws_nothing() -> None:
    """Ties go to the lowest id, signed zeros tie, and the generator stays where it is."""
    sampler = greedy()
    assert drawn(sampler, row(1, 3, 3)) == [1] * 5
    assert drawn(sampler, row(-0.0, 0.0)) == [0] * 5
    assert sampler._generator == SplitMix64(SEED)


@pytest.mark.parametrize("settings", [{"temperature": 1e-300}, {"temperature": 5e-324}, {"top_p": 1e-9}])
def test_settings_that_leave_only_the_best(settings: dict[str, float]) -> None:
    """Distances overflow to minus infinity, whose weight is 0; one is always kept."""
    assert drawn(chain(**settings), row(0, 1, 0.999)) == [1] * 5


def test_one_candidate_still_uses_a_draw() -> None:
    """The third and fourth draw follow two that had no choice."""
    sampler = chain()
    assert drawn(sampler, row(-math.inf, 1), 2) == [1, 1]
    assert drawn(sampler, np.zeros(64, np.float32), 2) == [int(draw * 64) for draw in DRAWS[2:4]]


def test_a_bias_is_added_to_the_logit() -> None:
    """1 + 2.5 beats 3, 1 + 2 ties with it and has the lower id, 1 + 1.5 does not beat it."""
    logits = row(1, 2, 3)
    assert [greedy(logit_bias={0: bias}).sample(logits) for bias in (2.5, 2, 1.5)] == [0, 0, 2]
    # Weights 1 and 3 of 4: 4 u = 1.40, 0.69, 2.13, 1.00, 3.56 against the likelier one's 3.
    assert drawn(chain(logit_bias={1: math.log(3)}), row(0, 0)) == [1, 1, 1, 1, 0]


def test_a_bias_of_all_changes_nothing() -> None:
    """Only differences count."""
    logits = row(0, 1, 2, 3)
    assert drawn(chain(logit_bias=dict.fromkeys(range(4), -100)), logits, 40) == drawn(chain(), logits, 40)


def test_a_bias_does_not_lift_a_mask() -> None:
    """Minus infinity plus 100 is minus infinity."""
    assert drawn(chain(logit_bias={0: 100}), row(-math.inf, -50)) == [1] * 5


def test_a_presence_penalty_counts_once() -> None:
    """5 and 4.5: after one draw 5 is 4, then 4.5 is 3.5, and 4 stays the best."""
    assert drawn(greedy(presence_penalty=1), row(5, 4.5, 0)) == [0, 1, 0, 0, 0]


def test_a_frequency_penalty_counts_every_draw() -> None:
    """5, then 4.6 beats 4.5, then 4.2 does not; 4.2 beats 4.1, then 3.8 does not."""
    assert drawn(greedy(frequency_penalty=0.4), row(5, 4.5, 0)) == [0, 0, 1, 0, 1]


def test_negative_penalties_reward() -> None:
    """An id that was drawn gains 2: 4 + 2 beats 5."""
    sampler = greedy(presence_penalty=-2)
    assert sampler.sample(row(4, 3)) == 0
    assert drawn(sampler, row(4, 5), 3) == [0] * 3


def test_a_repetition_penalty_divides_and_multiplies() -> None:
    """Both make a logit smaller: 4 becomes 2, -1 becomes -2; below 1 it is the other way round."""
    assert drawn(greedy(repetition_penalty=2), row(4, 3, -1), 3) == [0, 1, 0]
    assert drawn(greedy(repetition_penalty=2), row(-1, -1.5), 3) == [0, 1, 0]
    assert drawn(greedy(1, repetition_penalty=0.5), row(4, 3), 3) == [1] * 3


def test_the_prompt_counts_for_repetition_alone() -> None:
    """4 halved is below 3, and then 3 halved below 2; presence and frequency begin with the answer."""
    assert drawn(greedy(0, 0, 0, repetition_penalty=2), row(4, 3, -1), 2) == [1, 0]
    assert greedy(0, 0, 0, presence_penalty=2, frequency_penalty=2).sample(row(4, 3)) == 0


def test_the_order_of_adjustments() -> None:
    """Bias, repetition, then frequency and presence: (2 + 2) / 2 - 0.75 = 1.25 is below 1.3.

    With the bias last it would be 2.25, with repetition last 1.625.
    """
    sampler = greedy(logit_bias={0: 2}, repetition_penalty=2, frequency_penalty=0.5, presence_penalty=0.25)
    assert drawn(sampler, row(2, 1.3), 2) == [0, 1]


def test_restores_take_counts_back() -> None:
    """A clone has draws and counts of its own."""
    sampler = greedy(2, frequency_penalty=0.4, repetition_penalty=1.01)
    logits = row(5, 4.5, 4.54)
    saved = sampler.clone()
    first = drawn(sampler, logits, 8)
    assert len(set(first)) == 3
    assert drawn(saved.clone(), logits, 8) == first
    sampler.restore(saved)
    assert drawn(sampler, logits, 8) == first
    warm = chain(presence_penalty=1)
    kept = warm.clone()
    equal = np.zeros(4, np.float32)
    once = drawn(warm, equal, 5)
    warm.restore(kept)
    assert drawn(warm, equal, 5) == once


def test_a_failed_draw_counts_nothing() -> None:
    """The first draw after it is the first."""
    sampler = greedy(presence_penalty=1)
    with pytest.raises(EngineFaultError):
        sampler.sample(row(math.nan, 1, 1))
    assert drawn(sampler, row(5, 4.5, 0), 2) == [0, 1]


def test_an_adjusted_logit_beyond_float32_is_a_fault() -> None:
    """3e38 divided by 0.01 is infinite."""
    with pytest.raises(EngineFaultError):
        greedy(0, repetition_penalty=0.01).sample(row(3e38, 1))


@pytest.mark.parametrize(
    ("sampler", "field", "words"),
    [
        (greedy(logit_bias={2: 1}), "logit_bias", "token id 2 is outside the vocabulary of 2"),
        (greedy(0, 2, repetition_penalty=1.1), "prompt", "token id 2 is outside"),
        (greedy(-1, repetition_penalty=1.1), "prompt", "token id -1 is outside"),
    ],
)
def test_tokens_outside_the_vocabulary_are_refused(sampler: ChainSampler, field: str, words: str) -> None:
    """With the first logits, when the vocabulary is known."""
    with pytest.raises(InvalidInputError, match=words) as caught:
        sampler.sample(row(0, 0))
    assert caught.value.field == field


def test_settings_are_described() -> None:
    """All of them, with token ids as JSON has keys."""
    settings = ChainSettings(5, 0.5, 7, 0.25, 0.1, 1.5, -1.5, 1.1, {3: -100.0})
    assert ChainSampler(settings).describe() == {
        "mode": "chain",
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.25,
        "min_p": 0.1,
        "presence_penalty": 1.5,
        "frequency_penalty": -1.5,
        "repetition_penalty": 1.1,
        "logit_bias": {"3": -100.0},
        "seed": 5,
        "rng": "splitmix64",
    }


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [-1, math.nan, math.inf]),
        ("top_k", [-1]),
        ("top_p", [0, 1.01, math.nan]),
        ("min_p", [-0.1, 1.01, math.nan]),
        ("presence_penalty", [-2.01, 2.01, math.nan]),
        ("frequency_penalty", [-2.01, 2.01, math.nan]),
        ("repetition_penalty", [0, -1, 0.009, 2.01, math.nan]),
        ("logit_bias", [{0: 100.1}, {0: -100.1}, {0: math.nan}, {-1: 0}]),
    ],
)
def test_settings_outside_their_range_are_refused(field: str, values: list[Any]) -> None:
    """With the field's name for the edges to map."""
    for value in values:
        with pytest.raises(InvalidInputError) as caught:
            chain(**{field: value})
        assert caught.value.field == field
