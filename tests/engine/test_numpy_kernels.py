from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from numpy.typing import NDArray

from engine import tensor_types as types
from engine.kernels import Kernels, NumpyKernels, canon, choose_kernels, default_threads
from engine.kernels.matrices import PackedMatrix
from engine.tensor_types import TENSOR_TYPES
from tests import scalar_canon
from tests.gguf_writer import Q8_0
from tests.models import BACKENDS, random_blocks
from tests.scalar_blocks import GEOMETRY, Q5_1, STEP_ZERO, decode_block

F = np.float32
Floats = NDArray[np.float32]
Halves = NDArray[np.float16]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Division by zero is part of the contract; the decoder silences it the same way."""
    with np.errstate(all="ignore"):
        yield


Backend = Callable[..., Kernels]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Every backend, as a function of threads, bits and memory; compared with the scalar contract."""
    return partial(choose_kernels, str(request.param))


def normal(seed: int, *shape: int) -> Floats:
    """Random activations of about one."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def raw_rows(kind: int, rows: int, inputs: int) -> NDArray[np.uint8]:
    """A random matrix in the bytes of a type."""
    data = random_blocks(np.random.default_rng(kind), kind, rows, inputs)
    return np.frombuffer(data, np.uint8).reshape(rows, -1)


def packed_products(kind: int, raw: NDArray[np.uint8], x: Floats, bits: int) -> Floats:
    """Products [tokens, rows] by the scalar contract."""
    size = GEOMETRY[kind][1]
    out = np.empty((len(x), len(raw)), np.float32)
    for row, token in product(range(len(raw)), range(len(x))):
        starts = range(0, raw.shape[1], size)
        blocks = [decode_block(kind, raw[row, at : at + size].tobytes()) for at in starts]
        minimums = [F(b.minimum) for b in blocks if b.minimum is not None]
        out[token, row] = scalar_canon.packed_dot(
            [b.codes for b in blocks],
            [F(b.scale) for b in blocks],
            minimums or None,
            STEP_ZERO[kind],
            list(x[token]),
            bits,
        )
    return out


def multiply(kernels: Kernels, kind: int, raw: NDArray[np.uint8], x: Floats) -> Floats:
    """Products [tokens, rows] by a backend, through the calls that graphs make."""
    matrix = kernels.matrix(TENSOR_TYPES[kind], raw.copy())  # a backend may rearrange its rows
    return kernels.multiply([matrix], x)[0]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", GEOMETRY)
def test_packed_products_equal_the_scalar_contract_by_bits(backend: Backend, kind: int, bits: int) -> None:
    """Every packed type and both precisions, for one token and for three."""
    raw, x = raw_rows(kind, 5, 384), normal(1, 3, 384)
    expected = packed_products(kind, raw, x, bits)
    kernels = backend(1, bits)
    assert multiply(kernels, kind, raw, x).tobytes() == expected.tobytes()
    assert multiply(kernels, kind, raw, x[:1]).tobytes() == expected[:1].tobytes()


@pytest.mark.parametrize("rows", [1, 2, 3, 33])
@pytest.mark.parametrize(("threads", "expansion_bytes"), [(1, 0), (2, 1 << 20), (3, 1 << 20), (3, 0)])
def test_packed_products_do_not_depend_on_tiles(
    backend: Backend, rows: int, threads: int, expansion_bytes: int
) -> None:
    """A tile of a single row gives one token the bits that it gives many (24 blocks: the order shows)."""
    kind = types.Q4_1.id
    raw, x = raw_rows(kind, rows, 768), normal(2, 2, 768)
    expected = packed_products(kind, raw, x, 8)
    kernels = backend(threads, 8, expansion_bytes)
    for part in (slice(0, 1), slice(1, 2), slice(0, 2)):
        assert multiply(kernels, kind, raw, x[part]).tobytes() == expected[part].tobytes()


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", GEOMETRY)
def test_integer_dots_are_exact_at_the_extremes(backend: Backend, kind: int, bits: int) -> None:
    """The largest codes against the largest activations of one sign, where sums are greatest."""
    group, size = GEOMETRY[kind]
    ones = np.full((2, size), 0x7F if kind == Q8_0 else 0xFF, np.uint8)  # the largest codes
    ones[1] = 0x80 if kind == Q8_0 else 0  # the smallest
    for offset in (0, 2) if kind in (types.Q4_1.id, Q5_1) else (26,) if kind == types.PTQ1_0.id else (0,):
        ones[:, offset : offset + 2] = np.array([1.0], "<f2").view(np.uint8)
    # Integers just below the limit and of all parities, so that a lost lowest bit shows.
    x = 1 - (np.arange(2 * group).reshape(2, group) % 7 / 32512).astype(np.float32)
    x[:, 0] = 1
    x[1, ::2] *= -1
    expected = packed_products(kind, ones, x, bits)
    assert multiply(backend(1, bits), kind, ones, x).tobytes() == expected.tobytes()


def test_a_bad_activation_makes_its_whole_token_nan(backend: Backend) -> None:
    """An infinite activation cannot pass unseen, and leaves the other tokens alone."""
    raw, x = raw_rows(types.PQ2_0.id, 4, 256), normal(3, 2, 256)
    alone = multiply(backend(1, 16), types.PQ2_0.id, raw, x[1:])
    x[0, 200] = np.inf
    found = multiply(backend(1, 16), types.PQ2_0.id, raw, x)
    assert np.isnan(found[0]).all()
    assert found[1:].tobytes() == alone.tobytes()


@pytest.mark.parametrize("inputs", [16, 20, 250])
@pytest.mark.parametrize("kind", [types.F32, types.F16, types.BF16], ids=lambda kind: kind.name)
def test_dense_products_equal_the_scalar_contract_by_bits(
    backend: Backend, kind: types.TensorType, inputs: int
) -> None:
    """Float weights, also where the inputs do not fill the last sixteen lanes."""
    weights, x = normal(4, 7, inputs), normal(5, 3, inputs)
    stored = {"F32": weights, "F16": weights.astype("<f2"), "BF16": (weights.view("<u4") >> 16).astype("<u2")}
    raw = stored[kind.name].view(np.uint8)
    if kind.name == "F16":
        weights = stored["F16"].astype(np.float32)
    if kind.name == "BF16":
        weights = (stored["BF16"].astype("<u4") << 16).view(np.float32)
    expected = np.array([[scalar_canon.dot(list(w), list(t)) for w in weights] for t in x], np.float32)
    for threads, expansion_bytes in ((1, 0), (2, 1 << 20), (3, 1 << 20)):
        kernels = backend(threads, 16, expansion_bytes)
        assert multiply(kernels, kind.id, raw, x).tobytes() == expected.tobytes()
        assert multiply(kernels, kind.id, raw, x[1:2]).tobytes() == expected[1:2].tobytes()


def test_other_types_become_dense_matrices(backend: Backend) -> None:
    """A K-quant goes through the `gguf` package and then by the dense rule."""
    raw, x = raw_rows(14, 3, 512), normal(6, 2, 512)
    weights = dequantize(raw, gguf.GGMLQuantizationType.Q6_K)
    expected = np.array([[scalar_canon.dot(list(w), list(t)) for w in weights] for t in x], np.float32)
    assert multiply(backend(1, 16), 14, raw, x).tobytes() == expected.tobytes()


def test_several_matrices_share_one_call(backend: Backend) -> None:
    """Matrices of one form give together what each gives alone."""
    kind = types.PQ2_0
    first, second = raw_rows(kind.id, 5, 256), raw_rows(kind.id, 3, 256)
    x = normal(21, 2, 256)
    kernels = backend(1, 16)
    matrices = [kernels.matrix(kind, raw.copy()) for raw in (first, second)]
    forms = {kernels.form(matrix) for matrix in matrices}
    assert len(forms) == 1
    together = kernels.multiply(matrices, x)
    assert together[0].tobytes() == multiply(kernels, kind.id, first, x).tobytes()
    assert together[1].tobytes() == multiply(kernels, kind.id, second, x).tobytes()


def test_rows_are_selected_by_id(backend: Backend) -> None:
    """The embedding look-up: dequantised rows in the order asked for, repeats included."""
    raw = raw_rows(types.PTQ1_0.id, 4, 256)
    matrix = backend(1, 16).matrix(types.PTQ1_0, raw.copy())
    assert (matrix.rows, matrix.inputs) == (4, 256)
    found = matrix.select([2, 0, 2])
    for place, row in enumerate((2, 0, 2)):
        blocks = [raw[row, at : at + 28].tobytes() for at in (0, 28)]
        expected = [value for block in blocks for value in decode_block(143, block).values(143)]
        assert found[place].tolist() == expected


def attend(kernels: Kernels, query: Floats, keys: Halves, values: Halves, scale: np.float32) -> Floats:
    """Attention alone: no norms, a rotation by no angle, the last keys and values written again."""
    tokens, position = len(query), len(keys) - len(query)
    still = canon.RopeRows(np.ones((tokens, 4), np.float32), np.zeros((tokens, 4), np.float32), False)
    memories = keys.copy(), values.copy()
    for memory in memories:
        memory[position:] = np.nan
    new = keys[position:].astype(np.float32), values[position:].astype(np.float32)
    norms = canon.HeadNorms(None, None, F(0))
    return kernels.attend(query, *new, norms, still, *memories, position, scale)


ATTENTION_SIZES = product([(1, 0), (1, 20), (3, 40), (5, 0), (4, 13), (9, 70)], [16, 24, 48])


@pytest.mark.parametrize(
    ("tokens", "past", "dim"), [*((*tokens, dim) for tokens, dim in ATTENTION_SIZES), (1, 1, 1040)]
)
def test_attention_equals_the_scalar_contract_by_bits(
    backend: Backend, tokens: int, past: int, dim: int
) -> None:
    """Each query head sees its own key head and no later position."""
    heads, kv_heads = 4, 2
    query = normal(7, tokens, heads, dim) * 3
    keys = normal(8, past + tokens, kv_heads, dim).astype(np.float16)
    values = normal(9, past + tokens, kv_heads, dim + 16).astype(np.float16)
    scale = F(dim**-0.5)
    expected = np.array(
        [
            [
                scalar_canon.attention(
                    list(query[t, h]),
                    [list(k) for k in keys[: past + t + 1, h // 2].astype(np.float32)],
                    [list(v) for v in values[: past + t + 1, h // 2].astype(np.float32)],
                    scale,
                )
                for h in range(heads)
            ]
            for t in range(tokens)
        ],
        np.float32,
    )
    for threads in (1, 2):
        found = attend(backend(threads, 16), query, keys, values, scale)
        assert found.tobytes() == expected.tobytes()


def test_attention_over_one_position_copies_its_value(backend: Backend) -> None:
    """The weight of a single position is exactly 1."""
    values = normal(10, 1, 1, 16).astype(np.float16)
    found = attend(backend(1, 16), normal(11, 1, 2, 16), values, values, F(0.25))
    np.testing.assert_array_equal(found[0], np.broadcast_to(values[0].astype(np.float32), (2, 16)))


def each(function: Callable[[np.float32], np.float32], values: Floats) -> Floats:
    """A scalar function on every element."""
    return np.array([function(value) for value in values.ravel()], np.float32).reshape(values.shape)


def test_gated_products(backend: Backend) -> None:
    """silu and sigmoid of the contract, times the other operand."""
    gate, other = normal(18, 2, 3, 16) * 4, normal(19, 2, 3, 16)
    kernels = backend(1, 16)
    silu, sigmoid = each(scalar_canon.silu, gate), each(scalar_canon.sigmoid, gate)
    flat = gate.reshape(2, 48), other.reshape(2, 48)
    assert kernels.silu_product(*flat).tobytes() == (silu * other).tobytes()
    assert kernels.sigmoid_product(gate, other).tobytes() == (sigmoid * other).tobytes()


@dataclass(frozen=True)
class DeltaCase:
    """What a DeltaNet layer is given, and by the scalar contract its outputs and memories afterwards."""

    inputs: Floats
    gate: Floats
    alpha: Floats
    beta: Floats
    recent: Floats
    state: Floats
    weights: canon.DeltaWeights
    outputs: Floats
    recent_after: Floats
    state_after: Floats


@cache
def delta_case(tokens: int, taps: int, dim: int) -> DeltaCase:
    """2 key heads of `dim` dimensions, 4 value heads of 32; value head h reads key head h mod 2."""
    keys, heads, value_dim, epsilon = 2, 4, 32, F(1e-6)
    channels = 2 * keys * dim + heads * value_dim
    inputs, recent = normal(12, tokens, channels), normal(13, taps - 1, channels)
    gate, alpha, beta = (
        normal(14, tokens, heads * value_dim),
        normal(15, tokens, heads),
        normal(16, tokens, heads),
    )
    state = normal(17, heads, dim, value_dim)
    a, dt = -np.abs(normal(18, heads)), normal(19, heads)
    weights = canon.DeltaWeights(normal(20, taps, channels), a, dt, normal(21, value_dim), epsilon)
    history = np.concatenate((recent, inputs))
    memory = [[list(row) for row in head] for head in state]
    outputs = np.empty((tokens, heads, value_dim), np.float32)
    for t in range(tokens):
        columns = zip(weights.convolution.T, history[t : t + taps].T, strict=True)
        line = [scalar_canon.silu(scalar_canon.convolve(list(w), list(x))) for w, x in columns]
        units = [scalar_canon.l2_norm(line[at : at + dim], epsilon) for at in range(0, 2 * keys * dim, dim)]
        for h in range(heads):
            query = [F(value * F(dim**-0.5)) for value in units[h % keys]]
            value = line[2 * keys * dim + h * value_dim :][:value_dim]
            decay = scalar_canon.exp(F(a[h] * scalar_canon.softplus(F(alpha[t, h] + dt[h]))))
            strength = scalar_canon.sigmoid(beta[t, h])
            mixed = scalar_canon.delta_step(memory[h], query, units[keys + h % keys], value, decay, strength)
            normed = scalar_canon.rms_norm(mixed, list(weights.norm), epsilon)
            gates = gate[t, h * value_dim :][:value_dim]
            outputs[t, h] = [F(scalar_canon.silu(g) * value) for g, value in zip(gates, normed, strict=True)]
    return DeltaCase(
        inputs,
        gate,
        alpha,
        beta,
        recent,
        state,
        weights,
        outputs.reshape(tokens, -1),
        history[tokens:],
        np.array(memory, np.float32),
    )


@pytest.mark.parametrize(
    ("tokens", "taps", "threads", "dim"),
    [
        (1, 4, 1, 16),
        (1, 4, 3, 48),
        (2, 4, 2, 16),
        (5, 4, 5, 16),
        (3, 2, 2, 32),
        (67, 4, 2, 16),
        (1, 4, 2, 1040),
    ],
)
def test_delta_net_equals_the_scalar_contract_by_bits(
    backend: Backend, tokens: int, taps: int, threads: int, dim: int
) -> None:
    """Outputs and both memories, for fewer tokens than taps and for more than are gated together."""
    case = delta_case(tokens, taps, dim)
    recent, state = case.recent.copy(), case.state.copy()
    found = backend(threads, 16).delta_net(
        case.inputs, case.gate, case.alpha, case.beta, recent, state, case.weights
    )
    assert found.tobytes() == case.outputs.tobytes()
    assert recent.tobytes() == case.recent_after.tobytes()
    assert state.tobytes() == case.state_after.tobytes()


def test_norm_adds_what_a_sublayer_gave(backend: Backend) -> None:
    """The addition goes into x in place and is rounded before the norm."""
    x, add, weight = normal(29, 2, 48), normal(30, 2, 48), normal(31, 48)
    total = x + add
    kernels = backend(1, 16)
    for change in (add, None):
        expected = [scalar_canon.rms_norm(list(row), list(weight), F(1e-5)) for row in total]
        found = kernels.rms_norm(x, change, weight, F(1e-5))
        assert found.tobytes() == np.array(expected, np.float32).tobytes()
        assert x.tobytes() == total.tobytes()


@pytest.mark.parametrize("adjacent", [False, True])
@pytest.mark.parametrize("normed", [False, True])
def test_heads_are_normed_and_rotated(backend: Backend, adjacent: bool, normed: bool) -> None:
    """Pairs (i, i + 8) or (2i, 2i + 1) of the first 16 dimensions turn, the others stay; keys become fp16."""
    tokens, heads, dim, pairs = 3, 2, 32, 8
    x, angles = normal(32, tokens, heads, dim), normal(33, tokens, pairs)
    rope = canon.RopeRows(np.cos(angles), np.sin(angles), adjacent)
    norm = normal(34, dim) if normed else None
    expected = np.empty_like(x)
    for t, h in product(range(tokens), range(heads)):
        head = list(x[t, h])
        if norm is not None:
            head = scalar_canon.rms_norm(head, list(norm), F(1e-6))
        expected[t, h] = scalar_canon.rotate(head, list(rope.cosines[t]), list(rope.sines[t]), adjacent)
    memories = np.zeros((5, heads, dim), np.float16), np.zeros((5, heads, dim), np.float16)
    norms = canon.HeadNorms(norm, norm, F(1e-6))
    mixed = backend(1, 16).attend(x, x, x, norms, rope, *memories, 1, F(0.25))
    for memory, new in zip(memories, (expected, x), strict=True):
        assert memory[1:4].tobytes() == new.astype(np.float16).tobytes()
        assert not memory[[0, 4]].any()
    # Queries turn as keys do: attention over what was written, by queries that are turned already.
    turned = attend(backend(1, 16), expected, memories[0][:4], memories[1][:4], F(0.25))
    assert mixed.tobytes() == turned.tobytes()


@pytest.mark.parametrize("kind", [types.PQ2_0, types.F32], ids=lambda kind: kind.name)
@pytest.mark.parametrize("ordered", [False, True])
def test_folded_matrices_get_rotated_inputs(backend: Backend, kind: types.TensorType, ordered: bool) -> None:
    """Order, then signs, then the transform, then the product of what came out."""
    x, signs = normal(35, 2, 256), np.where(normal(36, 256) < 0, F(-1), F(1))
    order = np.random.default_rng(37).permutation(256) if ordered else None
    taken = (x if order is None else x[:, order]) * signs
    blocks = [scalar_canon.hadamard(list(block)) for block in taken.reshape(-1, 32)]
    rotated = np.array(blocks, np.float32).reshape(2, 256)
    raw = normal(38, 3, 256).view(np.uint8) if kind is types.F32 else raw_rows(kind.id, 3, 256)
    kernels = backend(1, 16)
    matrices = [kernels.matrix(kind, raw.copy()) for _ in range(2)]
    found = kernels.multiply(matrices, x, canon.Rotation(32, signs, order))
    expected = multiply(kernels, kind.id, raw, rotated)
    assert [product.tobytes() for product in found] == [expected.tobytes()] * 2


def test_rotated_embeddings_are_unfolded(backend: Backend) -> None:
    """The transform first, then the signs."""
    z, signs = normal(35, 2, 64), np.where(normal(36, 64) < 0, F(-1), F(1))
    blocks = [scalar_canon.hadamard(list(block)) for block in z.reshape(-1, 32)]
    expected = np.array(blocks, np.float32).reshape(2, 64) * signs
    assert backend(1, 16).unfold(z, canon.Rotation(32, signs)).tobytes() == expected.tobytes()


def test_expanded_weights_stay_within_the_memory_that_was_granted() -> None:
    """What fits is kept and charged; what does not fit is expanded anew and costs nothing."""
    raw = raw_rows(types.PQ2_0.id, 4, 256)
    kernels = NumpyKernels(1, 8, 6000)
    small, large = PackedMatrix(types.PQ2_0, raw[:1]), PackedMatrix(types.PQ2_0, raw)
    assert small.expanded_bytes == 256 * 4 + 2 * 8
    assert large.expanded_bytes == 4 * small.expanded_bytes
    x = kernels.quantise(normal(20, 1, 256), 128)
    kernels.multiply_packed(large, x)
    assert kernels.expansion_bytes == 6000 - large.expanded_bytes
    kernels.multiply_packed(small, x)
    kernels.multiply_packed(PackedMatrix(types.PQ2_0, raw), x)
    assert kernels.expansion_bytes == 6000 - large.expanded_bytes - small.expanded_bytes


def test_activation_limits_are_what_the_contract_names() -> None:
    """One signed byte, or two of them with the high one at 127."""
    assert canon.ACTIVATION_LIMITS[8] == 127
    assert canon.ACTIVATION_LIMITS[16] == 127 * 256


def test_default_threads_is_a_positive_count() -> None:
    """At least one processor is there to run this."""
    assert default_threads() >= 1
