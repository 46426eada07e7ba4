from __future__ import annotations

import pytest

from engine.errors import InvalidInputError
from engine.sampling import MersenneTwister


def test_the_ten_thousandth_output_is_that_of_the_standard() -> None:
    """C++ requires 4123659995 of a default std::mt19937, whose seed is 5489."""
    generator = MersenneTwister(5489)
    outputs = [generator.next() for _ in range(10_000)]
    assert outputs[:4] == [3499211612, 581869302, 3890346734, 3586334585]
    assert outputs[-1] == 4123659995


def test_seed_one_begins_as_published() -> None:
    """The outputs of the authors' init_genrand(1)."""
    generator = MersenneTwister(1)
    assert [generator.next() for _ in range(5)] == [1791095845, 4282876139, 3093770124, 4005303368, 491263]


def test_a_double_is_53_bits_of_two_outputs() -> None:
    """The first output is the lower half of 64 bits, of which the lowest eleven are dropped.

    581869302 × 2^32 + 3499211612 over 2^11 is 581869302 × 2^21 + 1708599 and a rest: 2048 × 1708599 is
    3499210752, which leaves 860. The six decimals are what C++'s uniform_real_distribution<double> prints.
    """
    generator = MersenneTwister(5489)
    doubles = [generator.double() for _ in range(6)]
    assert doubles[0] == (581869302 * 2**21 + 1708599) / 2**53
    assert [f"{double:.6f}" for double in doubles] == [
        "0.135477",
        "0.835009",
        "0.968868",
        "0.221034",
        "0.308167",
        "0.547221",
    ]


def test_the_largest_double_is_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits set give 1 - 2^-53; before Visual Studio 2022 17.12 they gave 1."""
    generator = MersenneTwister(1)
    monkeypatch.setattr(generator, "next", lambda: 2**32 - 1)
    assert generator.double() == 1 - 2**-53


def test_clones_go_on_alike() -> None:
    """A clone is independent, and a restore goes back to it."""
    generator = MersenneTwister(5489)
    generator.next()
    saved = generator.clone()
    assert [generator.next() for _ in range(3)] == [581869302, 3890346734, 3586334585]
    assert saved.clone().next() == 581869302
    generator.restore(saved)
    assert generator.next() == saved.next() == 581869302


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_have_32_bits(seed: int) -> None:
    """Others are refused with the field's name."""
    with pytest.raises(InvalidInputError, match="unsigned 32-bit") as caught:
        MersenneTwister(seed)
    assert caught.value.field == "seed"
