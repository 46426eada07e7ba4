"""The NumPy backend: every operation of a graph as `canon-2` defines it, split over a few threads.

Multiplications read expanded float32 weights. Expanding costs more than multiplying, so the backend keeps
what it expanded as long as the memory that its owner granted lasts, and expands the rest anew each time.
The exact integer step of packed matrices uses BLAS, which is right in any order: every partial sum is an
integer below 2**24.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from engine.kernels import canon
from engine.kernels.canon import LANES, Floats
from engine.kernels.matrices import DenseMatrix, Matrix, PackedMatrix
from engine.quantisation import BLOCK_FORMATS, Bytes
from engine.tensor_types import TensorType

Halves = NDArray[np.float16]

_TILE_VALUES = 1 << 19  # float32 values of one intermediate array of a tile: 2 MiB
_SMALL_WORK = 1 << 18  # weights times tokens below which threads cost more than they give


@dataclass
class NumpyKernels:
    """`threads` workers; `activation_bits` 8 or 16; up to `expansion_bytes` of expanded weights are kept."""

    threads: int
    activation_bits: int
    expansion_bytes: int = 0
    name: str = "numpy"
    _kept: dict[Matrix, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        # The workers below split the rows; a second level of threads inside BLAS would only compete.
        threadpool_limits(1, user_api="blas")
        self._pool = ThreadPoolExecutor(self.threads, "kernels") if self.threads > 1 else None

    def matrix(self, tensor_type: TensorType, raw: Bytes) -> Matrix:
        """Prepare a weight matrix from its raw rows, uint8 [rows, row bytes]."""
        if tensor_type.name in BLOCK_FORMATS:
            return PackedMatrix(tensor_type, raw)
        return DenseMatrix(tensor_type, raw)

    def quantise(self, x: Floats, group: int) -> canon.Quantised:
        """Integer activations of x [tokens, inputs] with one scale a `group` of inputs."""
        return canon.quantise(x, group, self.activation_bits)

    def form(self, matrix: Matrix) -> Hashable:
        """What activations are turned into for this matrix: None if they stay float32, else integers."""
        return matrix.group if isinstance(matrix, PackedMatrix) else None

    def multiply(
        self, matrices: list[Matrix], x: Floats, rotation: canon.Rotation | None = None
    ) -> list[Floats]:
        """Products [tokens, rows] of matrices of one form with x [tokens, inputs], rotated first if asked."""
        if rotation is not None:
            x = rotation.apply(x)
        first = matrices[0]
        if isinstance(first, PackedMatrix):
            integers = self.quantise(x, first.group)
            return [self.multiply_packed(m, integers) for m in matrices if isinstance(m, PackedMatrix)]
        return [self.multiply_dense(m, x) for m in matrices if isinstance(m, DenseMatrix)]

    def multiply_packed(self, matrix: PackedMatrix, x: canon.Quantised) -> Floats:
        """Products [tokens, rows] of a packed matrix with integer activations."""
        tokens = x.scales.shape[1]
        limit = int(canon.ACTIVATION_LIMITS[self.activation_bits])
        wide = matrix.largest_level * matrix.group * limit >= 1 << 24
        out = np.empty((tokens, matrix.rows), np.float32)

        def tile(start: int, stop: int) -> None:
            levels, scales, minimums = self._expanded(matrix, start, stop)
            blocks = x.scales.shape[0]
            step = max(1, _TILE_VALUES // (blocks * (stop - start)))
            for first in range(0, tokens, step):
                part = slice(first, first + step)
                out[part, start:stop] = _packed_tile(levels, scales, minimums, x, part, wide)

        self._over_rows(matrix, tokens, tile)
        return out

    def multiply_dense(self, matrix: DenseMatrix, x: Floats) -> Floats:
        """Products [tokens, rows] of a float matrix with x [tokens, inputs]: sixteen lanes, then the tree."""
        tokens = x.shape[0]
        padded = np.zeros((tokens, matrix.inputs + -matrix.inputs % LANES), np.float32)
        padded[:, : matrix.inputs] = x
        lanes = padded.reshape(tokens, -1, LANES, 1)
        out = np.empty((tokens, matrix.rows), np.float32)

        def tile(start: int, stop: int) -> None:
            weights = self._expanded(matrix, start, stop)
            step = max(1, _TILE_VALUES // 8 // (LANES * (stop - start)))
            for first in range(0, tokens, step):
                part = lanes[first : first + step]
                sums = np.zeros((part.shape[0], LANES, stop - start), np.float32)
                for group in range(weights.shape[0]):
                    sums += weights[group] * part[:, group]
                out[first : first + step, start:stop] = canon.fold_lanes(sums, 1)

        self._over_rows(matrix, tokens, tile)
        return out

    def rms_norm(self, x: Floats, add: Floats | None, weight: Floats, epsilon: np.float32) -> Floats:
        """Add `add` to x in place, unless it is None; then the RMS norm of x along its last axis."""
        if add is not None:
            x += add
        return canon.rms_norm(x, weight, epsilon)

    def attend(
        self,
        query: Floats,
        key: Floats,
        value: Floats,
        norms: canon.HeadNorms,
        rope: canon.RopeRows,
        keys: Halves,
        values: Halves,
        position: int,
        scale: np.float32,
    ) -> Floats:
        """Attention of a sequence's next tokens, the first at `position`.

        query, key and value [tokens, heads, dim] are the projections; queries and keys are normed and
        rotated; keys and values are rounded to fp16 and written to the memories `keys` and `values`
        [context, kv heads, dim] before they are read. Returns [tokens, heads, value dim].
        """
        end = position + len(query)
        keys[position:end] = _turned(key, norms.key, norms.epsilon, rope)
        values[position:end] = value
        turned = _turned(query, norms.query, norms.epsilon, rope)
        return self.attention(turned, keys[:end], values[:end], scale)

    def attention(self, query: Floats, keys: Halves, values: Halves, scale: np.float32) -> Floats:
        """Causal attention of the last tokens of a sequence.

        query [tokens, heads, dim] stands for the last positions of keys and values, fp16 [positions, kv
        heads, dim]; query head h reads kv head h // (heads / kv heads). Returns [tokens, heads, dim].
        """
        tokens, heads, dim = query.shape
        kv_heads = keys.shape[1]
        out = np.empty((tokens, kv_heads, heads // kv_heads, values.shape[2]), np.float32)
        grouped = query.reshape(tokens, kv_heads, heads // kv_heads, dim)

        def head(index: int) -> None:
            out[:, index] = _attend(
                grouped[:, index],
                keys[:, index].astype(np.float32),
                values[:, index].astype(np.float32),
                scale,
            )

        self._each(head, kv_heads, query.size * keys.shape[0] // 16)
        return out.reshape(tokens, heads, values.shape[2])

    def delta_net(
        self,
        inputs: Floats,
        gate: Floats,
        alpha: Floats,
        beta: Floats,
        recent: Floats,
        state: Floats,
        weights: canon.DeltaWeights,
    ) -> Floats:
        """Gated DeltaNet between its projections, for the next tokens of a sequence.

        inputs [tokens, channels] are queries, keys and values of all heads; gate [tokens, value heads * value
        dim]; alpha and beta [tokens, value heads]. The memories `recent` [taps - 1, channels] (the last
        inputs) and `state` [value heads, key dim, value dim] are advanced in place. Convolution and silu;
        queries and keys to unit length, queries also divided by sqrt(key dim); the delta rule, where value
        head h reads key head h mod (key heads); each head's result normed and multiplied by silu(gate).
        Returns [tokens, value heads * value dim].
        """
        history = np.concatenate((recent, inputs))
        recent[:] = history[len(inputs) :]
        heads = canon.convolve(history, weights.convolution)
        count, key_dim, value_dim = state.shape
        tokens, keys_width = len(heads), (heads.shape[1] - count * value_dim) // 2
        repeats = count * key_dim // keys_width
        query, key = heads[:, : 2 * keys_width].reshape(tokens, 2, -1, key_dim).transpose(1, 0, 2, 3)
        query = canon.l2_norm(query, weights.epsilon) * np.float32(key_dim**-0.5)
        query, key = (np.tile(x, (1, repeats, 1)) for x in (query, canon.l2_norm(key, weights.epsilon)))
        value = heads[:, 2 * keys_width :].reshape(tokens, count, value_dim)
        decay, strength = canon.delta_gates(alpha, beta, weights)
        mixed = np.empty((tokens, count, value_dim), np.float32)

        def some(index: int) -> None:
            part = slice(count * index // self.threads, count * (index + 1) // self.threads)
            each = (x[:, part] for x in (query, key, value, decay, strength))
            mixed[:, part] = canon.delta_rule(state[part], *each)

        self._each(some, self.threads, tokens * state.size)
        normed = canon.rms_norm(mixed, weights.norm, weights.epsilon)
        return canon.silu(gate) * normed.reshape(gate.shape)

    def unfold(self, z: Floats, rotation: canon.Rotation) -> Floats:
        """signs ⊙ (H z) for rows z [tokens, width] of a rotated embedding."""
        return rotation.invert(z)

    def silu_product(self, gate: Floats, up: Floats) -> Floats:
        """silu(gate) ⊙ up."""
        return canon.silu(gate) * up

    def sigmoid_product(self, gate: Floats, values: Floats) -> Floats:
        """sigmoid(gate) ⊙ values."""
        return canon.sigmoid(gate) * values

    def _expanded(self, matrix: Any, start: int, stop: int) -> Any:
        kept = self._kept.get(matrix)
        if kept is None:
            return matrix.expand(start, stop)
        if isinstance(matrix, DenseMatrix):
            return kept[..., start:stop]
        levels, scales, minimums = kept
        rows = slice(start, stop)
        return levels[:, rows], scales[:, rows], None if minimums is None else minimums[:, rows]

    def _over_rows(self, matrix: Any, tokens: int, tile: Callable[[int, int], None]) -> None:
        self._keep(matrix)
        if matrix in self._kept:
            rows = -(-matrix.rows // self.threads)
        else:
            rows = max(16, min(matrix.rows, (1 << 22) // matrix.inputs))
        starts = range(0, matrix.rows, rows)
        self._each(
            lambda i: tile(starts[i], min(starts[i] + rows, matrix.rows)),
            len(starts),
            matrix.rows * matrix.inputs * tokens,
        )

    def _keep(self, matrix: Any) -> None:
        if matrix not in self._kept and matrix.expanded_bytes <= self.expansion_bytes:
            self.expansion_bytes -= matrix.expanded_bytes
            self._kept[matrix] = matrix.expand(0, matrix.rows)

    def _each(self, task: Callable[[int], None], count: int, work: int) -> None:
        """Run task(0) … task(count - 1), on the workers when the work is worth it."""

        def quietly(index: int) -> None:
            # Error states belong to a thread. Overflow is not hidden: it ends in logits that are refused.
            with np.errstate(all="ignore"):
                task(index)

        if self._pool is None or count < 2 or work < _SMALL_WORK:
            for index in range(count):
                quietly(index)
        else:
            list(self._pool.map(quietly, range(count)))


def default_threads() -> int:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _turned(heads: Floats, norm: Floats | None, epsilon: np.float32, rope: canon.RopeRows) -> Floats:
    """Heads, normed unless `norm` is None, then rotated."""
    return canon.rotate(heads if norm is None else canon.rms_norm(heads, norm, epsilon), rope)


def _packed_tile(
    levels: Floats, scales: Floats, minimums: Floats | None, x: canon.Quantised, part: slice, wide: bool
) -> Floats:
    """One tile of a packed product: [tokens of part, rows]."""
    weights = levels.transpose(0, 2, 1)  # (blocks, group, rows)
    integers = x.levels[:, part]
    if wide:
        high = np.floor((integers + np.float32(128)) / np.float32(256))
        low = integers - high * np.float32(256)
        exact = np.matmul(high, weights).astype(np.int32) * 256 + np.matmul(low, weights).astype(np.int32)
        dots = exact.astype(np.float32)
    else:
        dots = np.matmul(integers, weights)  # (blocks, tokens, rows)
    x_scales = x.scales[:, part, None]
    terms: Floats = dots * (scales[:, None, :] * x_scales)
    if minimums is not None:
        terms = terms + x.sums[:, part, None] * (minimums[:, None, :] * x_scales)
    return canon.ordered_sum(terms, 0)


def _attend(query: Floats, keys: Floats, values: Floats, scale: np.float32) -> Floats:
    """Attention of one kv head: query [tokens, heads, dim], keys and values [positions, dim]."""
    tokens, heads = query.shape[:2]
    positions = keys.shape[0]
    key_integers, key_scales = canon.integer_vectors(keys)
    query_integers, query_scales = canon.integer_vectors(query)
    columns = key_integers.T.astype(np.float64)  # all sums are integers below 2^53, so BLAS is exact
    past = positions - tokens
    out = np.empty((tokens, heads, values.shape[1]), np.float32)
    step = max(1, _TILE_VALUES // (heads * positions))
    for first in range(0, tokens, step):
        part = slice(first, min(first + step, tokens))
        dots = (query_integers[part].astype(np.float64) @ columns).astype(np.float32)
        scores = dots * ((query_scales[part] * scale)[..., None] * key_scales)
        future = np.arange(positions) > past + np.arange(first, part.stop)[:, None]
        scores[np.broadcast_to(future[:, None, :], scores.shape)] = -np.inf
        weights = canon.attention_weight(scores - np.max(scores, axis=-1, keepdims=True))
        for t in range(part.stop - first):
            seen = past + first + t + 1
            mixed = canon.ordered_sum(weights[t, :, :seen, None] * values[:seen], -2)
            out[first + t] = mixed / canon.lane_sum(weights[t, :, :seen])[:, None]
    return out
