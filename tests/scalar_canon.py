"""The contract `canon-2` a number at a time, written from `docs/arithmetic.md` alone.

Every function takes and gives float32 scalars and rounds after each operation, in the order that the
document states; it is far too slow for anything but checking a backend by bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

F = np.float32
Scalars = Sequence[np.float32]

LIMITS = {8: F(127), 16: F(32512)}


def in_order(terms: Iterable[np.float32]) -> np.float32:
    """A sum from +0, first to last."""
    total = F(0)
    for term in terms:
        total = F(total + term)
    return total


def tree(lanes: Sequence[np.float32]) -> np.float32:
    """Lane i plus lane i + half, until one is left."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [F(lanes[i] + lanes[i + half]) for i in range(half)]
    return lanes[0]


def lane_sum(values: Scalars) -> np.float32:
    """Element k goes to lane k mod 16; the lanes then fold."""
    return tree([in_order(values[lane::16]) for lane in range(16)])


def dot(left: Scalars, right: Scalars) -> np.float32:
    """The lane sum of rounded products."""
    return lane_sum([F(a * b) for a, b in zip(left, right, strict=True)])


def exp(x: np.float32) -> np.float32:
    """Two-part reduction by ln 2 and a polynomial of degree 7."""
    if math.isnan(x):
        return x
    if x < F(-87):
        return F(0)
    x = min(x, F(88))
    n = F(round(float(F(x * F(1.44269504)))))  # Python rounds halves to even
    r = F(F(x - F(n * F(0.693359375))) - F(n * F(-2.1219444e-4)))
    result = F(1 / 5040)
    for divisor in (720, 120, 24, 6, 2, 1, 1):
        result = F(F(result * r) + F(1 / divisor))
    return F(result * F(2.0 ** int(n)))


def sigmoid(x: np.float32) -> np.float32:
    """From e = exp(-|x|): 1 / (1 + e), or e / (1 + e) for negative x."""
    e = exp(F(-abs(x)))
    return F((e if x < 0 else F(1)) / F(F(1) + e))


def silu(x: np.float32) -> np.float32:
    """x sigmoid(x)."""
    return F(x * sigmoid(x))


def softplus(x: np.float32) -> np.float32:
    """max(x, 0) + log(1 + e) with log(1 + e) = 2 z + 2/3 z³ + … to z¹⁵, z = e / (2 + e)."""
    if x > 20:
        return x
    e = exp(F(-abs(x)))
    z = F(e / F(F(2) + e))
    square = F(z * z)
    series = F(2 / 15)
    for power in (13, 11, 9, 7, 5, 3, 1):
        series = F(F(series * square) + F(2 / power))
    return F(max(x, F(0)) + F(series * z))


def rms_norm(x: Scalars, weight: Scalars, epsilon: np.float32) -> list[np.float32]:
    """x (1 / sqrt(mean of squares + epsilon)) weight, left to right."""
    mean = F(dot(x, x) / F(len(x)))
    factor = F(F(1) / np.sqrt(F(mean + epsilon)))
    return [F(F(value * factor) * w) for value, w in zip(x, weight, strict=True)]


def l2_norm(x: Scalars, epsilon: np.float32) -> list[np.float32]:
    """x (1 / sqrt(sum of squares + epsilon))."""
    factor = F(F(1) / np.sqrt(F(dot(x, x) + epsilon)))
    return [F(value * factor) for value in x]


def hadamard(x: Scalars) -> list[np.float32]:
    """Butterflies of distance 1, 2, 4, …, then the factor 1 / sqrt(n)."""
    values = list(x)
    distance = 1
    while distance < len(values):
        for start in range(len(values)):
            if not start & distance:
                a, b = values[start], values[start + distance]
                values[start], values[start + distance] = F(a + b), F(a - b)
        distance *= 2
    factor = F(1 / math.sqrt(len(values)))
    return [F(value * factor) for value in values]


def quantise(block: Scalars, bits: int) -> tuple[list[int], np.float32]:
    """Integers and scale of one block of activations."""
    limit = LIMITS[bits]
    largest = max((abs(value) for value in block), key=lambda v: math.inf if math.isnan(v) else v)
    if not math.isfinite(largest):
        return [0] * len(block), F(math.nan)
    with np.errstate(over="ignore"):
        inverse = F(limit / largest) if largest else F(math.inf)
    if not math.isfinite(inverse):
        return [0] * len(block), F(0)
    return [round(float(F(value * inverse))) for value in block], F(largest / limit)


def packed_dot(
    codes: Sequence[Sequence[int]],
    scales: Scalars,
    minimums: Scalars | None,
    step_zero: tuple[int, int],
    x: Scalars,
    bits: int,
) -> np.float32:
    """One output of a packed matrix: codes by block, and the activations of the whole row."""
    step, zero = step_zero
    group = len(codes[0])
    terms = []
    for b, block in enumerate(codes):
        q, scale = quantise(x[b * group : (b + 1) * group], bits)
        integer = step * sum(c * v for c, v in zip(block, q, strict=True)) - zero * sum(q)
        term = F(F(integer) * F(scales[b] * scale))
        if minimums is not None:
            term = F(term + F(F(sum(q)) * F(minimums[b] * scale)))
        terms.append(term)
    return in_order(terms)


def attention_weight(x: np.float32) -> np.float32:
    """e^x for x <= 0: one-part reduction by ln 2, a polynomial of degree 4, a multiple of 2^-12, 2^n."""
    if math.isnan(x):
        return x
    if x < F(-44):
        return F(0)
    n = F(round(float(F(x * F(1.44269504)))))
    r = F(x - F(n * F(0.69314718)))
    result = F(0.041875646)
    for coefficient in (0.16792142, 0.4999937, 0.9999623, 1.0):
        result = F(F(result * r) + F(coefficient))
    return F(F(round(float(result) * 4096) / 4096) * F(2.0 ** int(n)))


def integer_vector(x: Scalars) -> tuple[list[int], np.float32]:
    """Integers of length 32,512 and the scale of one vector."""
    with np.errstate(over="ignore"):
        square = dot(x, x)
    if not math.isfinite(square):
        return [0] * len(x), F(math.nan)
    if square < F(2.0**-100):
        return [0] * len(x), F(0)
    length = F(np.sqrt(square))
    inverse = F(F(32512) / length)
    return [round(float(F(value * inverse))) for value in x], F(length / F(32512))


def attention(
    query: Scalars, keys: Sequence[Scalars], values: Sequence[Scalars], scale: np.float32
) -> list[np.float32]:
    """One query head against the positions it may see."""
    q, query_scale = integer_vector(query)
    scores = []
    for key in keys:
        k, key_scale = integer_vector(key)
        product = sum(a * b for a, b in zip(q, k, strict=True))
        scores.append(F(F(product) * F(F(query_scale * scale) * key_scale)))
    largest = max(scores)
    weights = [attention_weight(F(score - largest)) for score in scores]
    total = lane_sum(weights)
    return [
        F(in_order(F(w * value[d]) for w, value in zip(weights, values, strict=True)) / total)
        for d in range(len(values[0]))
    ]


def delta_step(
    state: list[list[np.float32]],
    query: Scalars,
    key: Scalars,
    value: Scalars,
    decay: np.float32,
    beta: np.float32,
) -> list[np.float32]:
    """One token of one head: advances state [key][value] in place and returns the output."""
    for row in state:
        row[:] = [F(decay * s) for s in row]
    columns = range(len(value))
    read = [lane_sum([F(row[v] * k) for row, k in zip(state, key, strict=True)]) for v in columns]
    delta = [F(beta * F(value[v] - read[v])) for v in columns]
    for row, k in zip(state, key, strict=True):
        row[:] = [F(s + F(k * d)) for s, d in zip(row, delta, strict=True)]
    return [lane_sum([F(row[v] * q) for row, q in zip(state, query, strict=True)]) for v in columns]


def convolve(taps: Scalars, inputs: Scalars) -> np.float32:
    """The oldest input first."""
    return in_order(F(tap * value) for tap, value in zip(taps, inputs, strict=True))


def rotate(head: Scalars, cosines: Scalars, sines: Scalars, adjacent: bool) -> list[np.float32]:
    """Two rounded products and their difference or sum, pair by pair."""
    out = list(head)
    for i, (cosine, sine) in enumerate(zip(cosines, sines, strict=True)):
        first, second = (2 * i, 2 * i + 1) if adjacent else (i, i + len(cosines))
        a, b = head[first], head[second]
        out[first] = F(F(a * cosine) - F(b * sine))
        out[second] = F(F(a * sine) + F(b * cosine))
    return out
