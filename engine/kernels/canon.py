"""The arithmetic contract `canon-2` in NumPy: what every backend must reproduce to the bit.

All values are float32 and every operation is rounded once: no fused multiply-add, no library `exp`, no
BLAS in anything that rounds. Sums start from +0 and run in a stated order, so that they do not depend on
threads, blocks or vector width. `docs/arithmetic.md` gives the contract in words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

LANES = 16

# Largest integer activation by precision in bits.
ACTIVATION_LIMITS = {8: np.float32(127), 16: np.float32(32512)}

_F = np.float32
_LOG2_E = _F(1.4426950408889634)
_LN2_HIGH = _F(0.693359375)  # nine significant bits, so that n * _LN2_HIGH is exact
_LN2_LOW = _F(0.6931471805599453 - 0.693359375)
_EXP_SERIES = tuple(_F(c) for c in (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1, 1))
_EXP_LOWEST = _F(-87)  # below: exactly 0
_EXP_HIGHEST = _F(88)  # above: exp(88)
# e**r for |r| <= ln(2)/2 by the polynomial of degree 4 through the Chebyshev nodes: within 3.5e-6
_WEIGHT_SERIES = tuple(
    _F(float.fromhex(c)) for c in ("0x1.570b98p-5", "0x1.57e73p-3", "0x1.fffe5ap-2", "0x1.fffb0ep-1", "0x1p0")
)
_WEIGHT_LOWEST = _F(-44)  # below: exactly 0
_LN2 = _F(math.log(2))
_TWELVE_BITS = _F(3072)  # adding and taking it off rounds to a multiple of 2^-12
_LONGEST = _F(32512)  # of a vector as integers
_SHORTEST_SQUARE = _F(2.0**-100)  # a shorter vector counts as zeros
_LOG1P_SERIES = tuple(_F(2 / k) for k in (15, 13, 11, 9, 7, 5, 3, 1))


def lane_sum(values: Floats) -> Floats:
    """Sum along the last axis: lane j takes elements j, j+16, … in order, then the lanes fold in halves."""
    width = values.shape[-1]
    if width % LANES:
        padded = np.zeros((*values.shape[:-1], width + -width % LANES), np.float32)
        padded[..., :width] = values
        values = padded
    lanes = values.reshape(*values.shape[:-1], -1, LANES)
    return fold_lanes(ordered_sum(lanes, -2), -1)


def ordered_sum(values: Floats, axis: int) -> Floats:
    """Sum along an axis, first to last, starting from +0."""
    axis %= values.ndim
    if math.prod(values.shape[axis + 1 :]) == 1:
        # NumPy sums the innermost axis of an array in another order, but accumulates it in this one.
        start = np.zeros_like(values, shape=(*values.shape[:axis], 1, *values.shape[axis + 1 :]))
        running = np.add.accumulate(np.concatenate((start, values), axis), axis)
        last: Floats = np.take(running, -1, axis)
        return last
    total: Floats = np.add.reduce(values, axis=axis, initial=_F(0))
    return total


def fold_lanes(lanes: Floats, axis: int) -> Floats:
    """Add sixteen lanes as a tree, lane i with lane i + half: 16, 8, 4, 2, 1."""
    lanes = np.moveaxis(lanes, axis, 0)
    half = LANES // 2
    while half:
        lanes = lanes[:half] + lanes[half : 2 * half]
        half //= 2
    folded: Floats = lanes[0]
    return folded


def exp(values: Floats) -> Floats:
    """e**x with a Taylor polynomial of degree 7 on |r| <= ln(2)/2; 0 below -87, exp(88) above 88."""
    bounded = np.minimum(np.maximum(values, _EXP_LOWEST), _EXP_HIGHEST)
    bounded = np.where(np.isnan(values), _F(0), bounded)
    power = np.rint(bounded * _LOG2_E)
    r = (bounded - power * _LN2_HIGH) - power * _LN2_LOW
    result = np.full_like(r, _EXP_SERIES[0])
    for coefficient in _EXP_SERIES[1:]:
        result = result * r + coefficient
    scale = ((power.astype(np.int32) + 127) << 23).view(np.float32)
    result = result * scale
    result = np.where(values < _EXP_LOWEST, _F(0), result)
    return np.where(np.isnan(values), values, result)


def attention_weight(values: Floats) -> Floats:
    """e**x for x <= 0 in 13 significant bits, within a relative 2e-4; 0 below -44.

    Thirteen bits times the eleven of a half fit a float, so such a product is exact.
    """
    bounded = np.maximum(values, _WEIGHT_LOWEST)
    power = np.rint(bounded * _LOG2_E)
    r = bounded - power * _LN2
    result = np.full_like(r, _WEIGHT_SERIES[0])
    for coefficient in _WEIGHT_SERIES[1:]:
        result = result * r + coefficient
    result = (result + _TWELVE_BITS) - _TWELVE_BITS
    with np.errstate(invalid="ignore"):  # NaN stays NaN, whatever integer it is cast to
        scale = ((power.astype(np.int32) + 127) << 23).view(np.float32)
    return np.where(values < _WEIGHT_LOWEST, _F(0), result * scale)


def sigmoid(values: Floats) -> Floats:
    """1 / (1 + exp(-x)), as exp(-|x|) over 1 + exp(-|x|) for negative x."""
    e = exp(-np.abs(values))
    probability: Floats = np.where(values < 0, e, _F(1)) / (_F(1) + e)
    return probability


def silu(values: Floats) -> Floats:
    """x * sigmoid(x)."""
    return values * sigmoid(values)


def softplus(values: Floats) -> Floats:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), and x itself above 20.

    log1p(e) = 2 atanh(z) with z = e / (2 + e) <= 1/3, as an odd series to z**15.
    """
    e = exp(-np.abs(values))
    z = e / (_F(2) + e)
    square = z * z
    series = np.full_like(z, _LOG1P_SERIES[0])
    for coefficient in _LOG1P_SERIES[1:]:
        series = series * square + coefficient
    return np.where(values > 20, values, np.maximum(values, _F(0)) + series * z)


def rms_norm(x: Floats, weight: Floats, epsilon: np.float32) -> Floats:
    """x * (1 / sqrt(mean(x²) + epsilon)) * weight along the last axis."""
    mean = lane_sum(x * x) / _F(x.shape[-1])
    factor: Floats = _F(1) / np.sqrt(mean + epsilon)
    return x * factor[..., None] * weight


def l2_norm(x: Floats, epsilon: np.float32) -> Floats:
    """x * (1 / sqrt(sum(x²) + epsilon)) along the last axis."""
    factor: Floats = _F(1) / np.sqrt(lane_sum(x * x) + epsilon)
    return x * factor[..., None]


def integer_vectors(x: Floats) -> tuple[Floats, Floats]:
    """Vectors x [..., n] as integers of length 32,512, held in float32, and their scales [...].

    A product of two such vectors stays below 2^31 (Cauchy and Schwarz), so it is exact in any order. A vector
    whose square is below 2^-100 becomes zeros with scale 0; one whose square is not finite zeros with scale
    NaN.
    """
    square = lane_sum(x * x)
    length = np.sqrt(square)
    usable = np.isfinite(square) & (square >= _SHORTEST_SQUARE)
    inverse = np.divide(_LONGEST, length, out=np.zeros_like(length), where=usable)
    integers = np.where(usable[..., None], np.rint(x * inverse[..., None]), _F(0))
    scales = np.where(usable, length / _LONGEST, np.where(np.isfinite(square), _F(0), _F(np.nan)))
    return integers, scales.astype(np.float32)


def hadamard(x: Floats, block: int) -> Floats:
    """Normalised Sylvester-Walsh-Hadamard transform of each `block` of the last axis, natural order."""
    values = x.reshape(-1, block)
    half = 1
    while half < block:
        pairs = values.reshape(-1, block // (2 * half), 2, half)
        values = np.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), axis=2)
        values = values.reshape(-1, block)
        half *= 2
    return (values * _F(1 / np.sqrt(block))).reshape(x.shape)


@dataclass(frozen=True, eq=False)
class Rotation:
    """How the inputs of folded matrices [rows, width] are rotated; `block` is the size of the transform H.

    Compared by identity, so that matrices that share one are seen to.
    """

    block: int
    signs: Floats  # (width,)
    order: Indices | None = None  # features are taken in this order first

    def apply(self, x: Floats) -> Floats:
        """H (signs ⊙ x[order]) for x [tokens, width]."""
        return hadamard((x if self.order is None else x[:, self.order]) * self.signs, self.block)

    def invert(self, z: Floats) -> Floats:
        """signs ⊙ (H z) for z [tokens, width]."""
        return hadamard(z, self.block) * self.signs


@dataclass(frozen=True)
class RopeRows:
    """Cosines and sines [tokens, pairs] of a run of positions; pairs are (2i, 2i+1) or (i, i + pairs)."""

    cosines: Floats
    sines: Floats
    adjacent: bool


@dataclass(frozen=True)
class HeadNorms:
    """RMS norms of query and key heads, each weights [dim] or None."""

    query: Floats | None
    key: Floats | None
    epsilon: np.float32


def rotate(x: Floats, rope: RopeRows) -> Floats:
    """Rotate the first 2 * pairs dimensions of x [tokens, heads, dim] by the rows of its tokens."""
    pairs = rope.cosines.shape[1]
    cosines, sines = rope.cosines[:, None], rope.sines[:, None]
    if rope.adjacent:
        first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    else:
        first, second = slice(0, pairs), slice(pairs, 2 * pairs)
    out = x.copy()
    out[..., first] = x[..., first] * cosines - x[..., second] * sines
    out[..., second] = x[..., first] * sines + x[..., second] * cosines
    return out


@dataclass(frozen=True)
class DeltaWeights:
    """What a Gated DeltaNet layer has beside its projections; `a` is stored as -exp(A_log), so it is <= 0."""

    convolution: Floats  # (taps, channels), the last tap is the current token
    a: Floats  # (value heads,)
    dt: Floats  # (value heads,)
    norm: Floats  # (value dim,)
    epsilon: np.float32


def convolve(inputs: Floats, weights: Floats) -> Floats:
    """silu of a causal depthwise convolution: inputs [taps - 1 + tokens, channels], weights [taps, channels],
    oldest tap first. Returns [tokens, channels].
    """
    taps = len(weights)
    tokens = len(inputs) - (taps - 1)
    out = np.zeros((tokens, inputs.shape[1]), np.float32)
    for tap in range(taps):
        out += weights[tap] * inputs[tap : tap + tokens]
    return silu(out)


def delta_gates(alpha: Floats, beta: Floats, weights: DeltaWeights) -> tuple[Floats, Floats]:
    """Decay exp(a softplus(alpha + dt)) and strength sigmoid(beta), all [tokens, heads]."""
    return exp(weights.a * softplus(alpha + weights.dt)), sigmoid(beta)


def delta_rule(
    state: Floats, query: Floats, key: Floats, value: Floats, decay: Floats, strength: Floats
) -> Floats:
    """Gated delta rule, token by token, on `state` [heads, key dim, value dim] in place.

    query and key [tokens, heads, key dim]; value [tokens, heads, value dim]; decay and strength [tokens,
    heads]. Per token: S = decay S; d = strength (v - S k); S = S + k d; o = S q. Returns o [tokens, heads,
    value dim]. Source: Yang et al., "Gated Delta Networks", 2024.
    """
    out = np.empty(value.shape, np.float32)
    for t in range(len(value)):
        state *= decay[t, :, None, None]
        read = _over_keys(state * key[t, :, :, None])
        delta = strength[t, :, None] * (value[t] - read)
        state += key[t, :, :, None] * delta[:, None, :]
        out[t] = _over_keys(state * query[t, :, :, None])
    return out


def _over_keys(products: Floats) -> Floats:
    """Lane sum over the key axis of products [heads, key dim, value dim]."""
    heads, key_dim, value_dim = products.shape
    lanes = products.reshape(heads, key_dim // LANES, LANES, value_dim)
    return fold_lanes(ordered_sum(lanes, 1), 1)


@dataclass(frozen=True)
class Quantised:
    """Integer activations: `levels` [blocks, tokens, group], `scales` and `sums` [blocks, tokens].

    Levels and sums are integers held in float32.
    """

    levels: Floats
    scales: Floats
    sums: Floats


def quantise(x: Floats, group: int, bits: int) -> Quantised:
    """Round x [tokens, inputs] to integers of magnitude up to 127 (8 bits) or 32512 (16), a scale a block.

    A block whose largest magnitude is 0, or so small that its inverse overflows, becomes zeros with scale
    0; a block with a value that is not finite becomes zeros with scale NaN.
    """
    limit = ACTIVATION_LIMITS[bits]
    blocks = np.ascontiguousarray(x.reshape(x.shape[0], -1, group).transpose(1, 0, 2))
    largest = np.max(np.abs(blocks), axis=-1)
    inverse = limit / largest
    usable = np.isfinite(inverse) & np.isfinite(largest)
    levels = np.rint(blocks * np.where(usable, inverse, _F(0))[..., None])
    levels = np.where(usable[..., None], levels, _F(0))
    scales = np.where(usable, largest / limit, np.where(np.isfinite(largest), _F(0), _F(np.nan)))
    return Quantised(levels, scales.astype(np.float32), np.sum(levels, axis=-1, dtype=np.float32))
