from __future__ import annotations

import pytest

from engine.errors import InvalidInputError
from engine.sampling import SplitMix64
from tests.engine.sampling.draws import DRAWS, OUTPUTS, SEED


def test_splitmix64_gives_its_published_outputs() -> None:
    """And the first output of seed 0, 16294208416658607535."""
    generator = SplitMix64(SEED)
    assert [generator.next() for _ in OUTPUTS] == OUTPUTS
    assert SplitMix64(0).next() == 0xE220A8397B1DCDAF
    assert [round(draw, 4) for draw in DRAWS] == [0.3501, 0.1736, 0.5322, 0.249, 0.8895]


def test_a_fraction_is_the_upper_half_of_an_output() -> None:
    """The lower 32 bits are not looked at, so the largest fraction is 1 - 2^-32."""
    generator = SplitMix64(SEED)
    assert [generator.fraction() for _ in DRAWS] == DRAWS
    # 6457827717110365317 = 0x599ED017FB08FC85, and 0x599ED017 = 1503580183.
    assert DRAWS[0] == 1503580183 / 4294967296


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_have_64_bits(seed: int) -> None:
    """Others are refused with the field's name."""
    with pytest.raises(InvalidInputError, match="unsigned 64-bit") as caught:
        SplitMix64(seed)
    assert caught.value.field == "seed"
