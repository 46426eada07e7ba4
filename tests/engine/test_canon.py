from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.kernels import canon
from tests import scalar_canon
from tests.float64_graph import hadamard_matrix

F = np.float32
Floats = NDArray[np.float32]
INFINITY = math.inf

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Overflow and division by zero are part of the contract; the decoder silences them the same way."""
    with np.errstate(all="ignore"):
        yield


def normal(seed: int, *shape: int) -> Floats:
    """Random numbers of many magnitudes."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-12, 12, shape)
    return values.astype(np.float32)


def bits_of(values: object) -> bytes:
    """The bytes of float32 numbers."""
    return np.asarray(values, np.float32).tobytes()


def interesting() -> Floats:
    """Numbers at and around every cut-off, and a dense sweep."""
    edges = np.array([0.0, -0.0, 1e-45, 1e-38, 0.3465736, 20, 87, 88, 88.5, 103, 1e30, 3.4e38], np.float32)
    around = np.concatenate((edges, np.nextafter(edges, F(INFINITY)), np.nextafter(edges, -F(INFINITY))))
    sweep = np.linspace(-90, 90, 4001, dtype=np.float32)
    return np.concatenate((around, -around, sweep, normal(1, 500)))


@pytest.mark.parametrize("width", [1, 7, 15, 16, 17, 31, 48, 100, 257])
def test_lane_sum_takes_lanes_and_tree_in_the_stated_order(width: int) -> None:
    """The vector form gives the bits of the scalar form for every row, short last groups included."""
    rows = normal(width, 5, width)
    expected = [scalar_canon.lane_sum(list(row)) for row in rows]
    assert bits_of(canon.lane_sum(rows)) == bits_of(expected)


def test_lane_sum_worked_by_hand() -> None:
    """1e8 in lane 0 swallows the 1 of lane 8 but not the 1s that lane 1 gathered before the fold."""
    values = np.zeros(32, np.float32)
    values[0], values[8] = 1e8, 1  # 1e8 + 1 rounds back to 1e8
    values[1], values[17], values[9] = 3, 3, 2  # lane 1: 6, fold with lane 9: 8 = the spacing at 1e8
    assert canon.lane_sum(values) == F(100000008)


def test_a_sum_starts_at_plus_zero() -> None:
    """Only negative zeros give plus zero, so an empty lane cannot be told from a lane of them."""
    for shape in ((16,), (3,)):
        assert not np.signbit(canon.lane_sum(np.full(shape, -0.0, np.float32)))
    assert not np.signbit(canon.ordered_sum(np.full((4, 2), -0.0, np.float32), 0)).any()
    assert not np.signbit(canon.ordered_sum(np.full((4, 1), -0.0, np.float32), 0)).any()


@pytest.mark.parametrize("shape", [(1000, 1, 1), (1000, 1), (1000, 2), (1000, 3, 5), (1000,)])
def test_ordered_sum_runs_first_to_last_whatever_the_shape(shape: tuple[int, ...]) -> None:
    """Axes of length one must not change the order, though NumPy by itself would sum pairwise then."""
    values = normal(3, *shape)
    columns = values.reshape(1000, -1).T
    expected = [scalar_canon.in_order(column) for column in columns]
    assert bits_of(canon.ordered_sum(values, 0)) == bits_of(expected)
    if len(shape) == 1:
        assert bits_of(canon.ordered_sum(values[None, :], -1)) == bits_of(expected)


@pytest.mark.parametrize(
    ("vector", "scalar"),
    [
        (canon.exp, scalar_canon.exp),
        (canon.sigmoid, scalar_canon.sigmoid),
        (canon.silu, scalar_canon.silu),
        (canon.softplus, scalar_canon.softplus),
    ],
    ids=["exp", "sigmoid", "silu", "softplus"],
)
def test_functions_equal_their_scalar_form_by_bits(
    vector: Callable[[Floats], Floats], scalar: Callable[[np.float32], np.float32]
) -> None:
    """Every step of reduction and polynomial is rounded where the contract says."""
    values = interesting()
    assert bits_of(vector(values)) == bits_of([scalar(value) for value in values])


def test_exp_is_close_to_the_true_function() -> None:
    """Within 1.2 units in the last place between the cut-offs, and exact at 0."""
    values = np.linspace(-87, 88, 200_001, dtype=np.float32)
    found = canon.exp(values)
    true = np.exp(values.astype(np.float64))
    units = np.abs(found - true) / np.spacing(true.astype(np.float32))
    assert units.max() < 1.2
    assert canon.exp(np.zeros(1, np.float32))[0] == 1


def test_exp_at_the_cut_offs() -> None:
    """Zero below -87, the value of 88 above 88, NaN for NaN."""
    below = np.nextafter(F(-87), F(-88))
    values = np.array([-87, below, -1e30, -INFINITY, 88, 89, INFINITY, math.nan], np.float32)
    found = canon.exp(values)
    assert found[0] == pytest.approx(math.exp(-87), rel=1e-6)
    assert bits_of(found[1:4]) == bits_of([0, 0, 0])
    assert found[4] == pytest.approx(math.exp(88), rel=1e-6)
    assert found[5] == found[6] == found[4]
    assert math.isnan(found[7])


def test_sigmoid_and_softplus_are_close_and_never_overflow() -> None:
    """Against float64 over the whole range, and at infinities."""
    values = np.concatenate((np.linspace(-86, 86, 20_001), [-1e30, 1e30, -INFINITY, INFINITY]))
    values = values.astype(np.float32)
    wide = values.astype(np.float64)
    np.testing.assert_allclose(canon.sigmoid(values), 1 / (1 + np.exp(-wide)), rtol=4e-7, atol=2e-38)
    np.testing.assert_allclose(canon.softplus(values), np.logaddexp(0, wide), rtol=4e-7, atol=2e-38)
    assert canon.softplus(np.array([20.5], np.float32))[0] == 20.5
    assert np.isnan(canon.sigmoid(np.array([math.nan], np.float32)))[0]
    assert np.isnan(canon.softplus(np.array([math.nan], np.float32)))[0]


@pytest.mark.parametrize("width", [16, 40, 256])
def test_norms_equal_their_scalar_form_by_bits(width: int) -> None:
    """RMSNorm and the L2 norm multiply in the stated order."""
    rows, weight = normal(width, 4, width), normal(7, width)
    epsilon = F(1e-6)
    rms = [scalar_canon.rms_norm(list(row), list(weight), epsilon) for row in rows]
    l2 = [scalar_canon.l2_norm(list(row), epsilon) for row in rows]
    assert bits_of(canon.rms_norm(rows, weight, epsilon)) == bits_of(rms)
    assert bits_of(canon.l2_norm(rows, epsilon)) == bits_of(l2)


def test_norms_worked_by_hand() -> None:
    """Sixteen twos have the mean square 4 and the length 8."""
    twos = np.full((1, 16), 2, np.float32)
    np.testing.assert_array_equal(canon.rms_norm(twos, np.full(16, 3, np.float32), F(0)), np.full((1, 16), 3))
    np.testing.assert_array_equal(canon.l2_norm(twos, F(0)), np.full((1, 16), 0.25))


@pytest.mark.parametrize("block", [1, 2, 16, 128, 1024])
def test_hadamard_equals_butterfly_and_matrix(block: int) -> None:
    """By bits the butterfly in natural order, in value the Sylvester matrix, block by block."""
    rows = np.random.default_rng(block).standard_normal((2, 2 * block)).astype(np.float32)
    found = canon.hadamard(rows, block)
    scalar = [scalar_canon.hadamard(list(part)) for part in rows.reshape(-1, block)]
    assert bits_of(found) == bits_of(scalar)
    exact = rows.reshape(-1, block).astype(np.float64) @ hadamard_matrix(block)
    np.testing.assert_allclose(found.reshape(-1, block), exact, atol=2e-6)


@given(st.lists(st.integers(-1000, 1000), min_size=16, max_size=16))
def test_hadamard_is_its_own_inverse(numbers: list[int]) -> None:
    """On small integers and a factor of 1/4 everything is exact."""
    row = np.array([numbers], np.float32)
    np.testing.assert_array_equal(canon.hadamard(canon.hadamard(row, 16), 16), row)


def test_quantise_worked_by_hand() -> None:
    """A largest value of 127 makes the levels the rounded numbers themselves, halves to even."""
    row = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, -127, 3.2]], np.float32)
    found = canon.quantise(row, 8, 8)
    assert found.levels[0, 0].tolist() == [127, 0, 2, 2, 0, -2, -127, 3]
    assert found.scales[0, 0] == 1
    assert found.sums[0, 0] == 5
    wide = canon.quantise(row, 8, 16)  # 32512 / 127 = 256
    assert wide.levels[0, 0].tolist() == [32512, 128, 384, 640, -128, -384, -32512, 819]
    assert wide.scales[0, 0] == F(1 / 256)


def test_quantise_takes_blocks_along_the_inputs() -> None:
    """Two tokens of two blocks: levels are [blocks, tokens, group], scales [blocks, tokens]."""
    rows = np.array([[1, 2, 40, 80], [3, -6, 0, 0]], np.float32)
    found = canon.quantise(rows, 2, 8)
    assert found.levels.shape == (2, 2, 2)
    np.testing.assert_array_equal(found.scales, np.array([[2, 6], [80, 0]], np.float32) / F(127))
    assert found.levels[1, 1].tolist() == [0, 0]
    assert found.levels[0, 1].tolist() == [64, -127]  # 3 * 127 / 6 = 63.5 goes to the even 64


@pytest.mark.parametrize("bits", [8, 16])
def test_quantise_of_blocks_without_a_usable_scale(bits: int) -> None:
    """Zeros, and values whose inverse overflows, give scale 0; infinities and NaN give scale NaN."""
    smallest = struct.unpack("<f", struct.pack("<I", 1))[0]
    rows = np.zeros((5, 4), np.float32)
    rows[1, 2], rows[2, 1], rows[3, 0], rows[4, 3] = smallest, 1e-37, INFINITY, math.nan
    found = canon.quantise(rows, 4, bits)
    assert not found.levels[:, [0, 1, 3, 4]].any()
    assert found.scales[0, 0] == found.scales[0, 1] == 0
    assert np.isnan(found.scales[0, 3:]).all()
    assert not found.sums[0, [0, 1, 3, 4]].any()
    overflows = float(canon.ACTIVATION_LIMITS[bits]) / 1e-37 > np.finfo(np.float32).max
    assert (found.scales[0, 2] == 0) == overflows


@pytest.mark.parametrize("bits", [8, 16])
@given(row=st.lists(floats, min_size=4, max_size=4))
def test_quantise_equals_its_scalar_form_by_bits(bits: int, row: list[float]) -> None:
    """For any finite activations; the largest level never exceeds the limit."""
    found = canon.quantise(np.array([row], np.float32), 4, bits)
    levels, scale = scalar_canon.quantise([F(value) for value in row], bits)
    assert found.levels[0, 0].tolist() == levels
    assert bits_of(found.scales) == bits_of(scale)
    assert found.sums[0, 0] == sum(levels)
    assert max(map(abs, levels)) <= int(canon.ACTIVATION_LIMITS[bits])


@pytest.mark.parametrize(("bits", "relative"), [(8, 1 / 254), (16, 1 / 65024)])
def test_quantised_activations_are_within_half_a_step(bits: int, relative: float) -> None:
    """The error of an activation is at most half of its block's scale, and a little rounding."""
    rows = np.random.default_rng(2).standard_normal((6, 256)).astype(np.float32)
    found = canon.quantise(rows, 128, bits)
    back = found.levels * found.scales[..., None]
    blocks = rows.reshape(6, 2, 128).transpose(1, 0, 2)
    largest = np.abs(blocks).max(-1, keepdims=True)
    assert (np.abs(back - blocks) <= largest * relative * 1.01).all()


def test_delta_rule_worked_by_hand() -> None:
    """An empty state learns half of a value under a unit key, keeps half of it, and gives it back."""
    state = np.zeros((1, 16, 16), np.float32)
    unit = np.zeros((1, 1, 16), np.float32)
    unit[..., 3] = 1
    value = np.arange(16, dtype=np.float32).reshape(1, 1, 16)
    half, none, one = (np.full((1, 1), number, np.float32) for number in (0.5, 0, 1))
    first = canon.delta_rule(state, unit, unit, value, one, half)
    np.testing.assert_array_equal(first, value / 2)
    second = canon.delta_rule(state, unit * 2, unit, value, half, none)
    np.testing.assert_array_equal(second, value / 2)  # a quarter is left, asked for twice as loudly
    np.testing.assert_array_equal(state[0, 3], value[0, 0] / 4)
