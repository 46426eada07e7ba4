"""The native backend: the operations of `NumpyKernels` in C, equal to it by bits.

Packed matrices of the types below are brought to panel layout in the file's own memory when they are
prepared; float matrices are read as the file has them. Whatever has no native form (other types, head
dimensions that are no multiple of 16, or above 1024) is computed by the NumPy backend that this one extends.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

import engine.kernels._native as _native
from engine.kernels import canon
from engine.kernels.canon import Floats
from engine.kernels.matrices import Matrix
from engine.kernels.numpy_kernels import Halves, NumpyKernels
from engine.quantisation import BLOCK_FORMATS, Bytes, dequantise
from engine.tensor_types import BF16, F16, F32, TensorType

LEVELS: tuple[str, ...] = _native.level_names()
BUILT_LEVELS: tuple[str, ...] = _native.built_names()
FAILED_LEVELS: tuple[str, ...] = _native.failed_names()
highest_ids = _native.highest_ids

_PACKED_NAMES = ("Q1_0", "Q2_0", "PQ2_0", "PTQ1_0", "Q4_0", "Q4_1", "Q8_0")  # in the order of the C code
_PACKED = {name: index for index, name in enumerate(_PACKED_NAMES)}
_MAX_DIM = 1024  # of heads that the C code has room for
_DENSE = {F32.name: 0, F16.name: 1, BF16.name: 2}


class NativeDense(_native.Dense):
    """A float matrix that can also look up rows."""

    def __init__(self, index: int, raw: Bytes, inputs: int, tensor_type: TensorType) -> None:
        del index, raw, inputs  # the base class has taken them
        self._type = tensor_type

    def select(self, rows: list[int]) -> Floats:
        """The rows in float32 [len(rows), inputs]."""
        return dequantise(self._type, self.raw[rows])


@dataclass
class NativeKernels(NumpyKernels):
    """`name` is the level: the instruction set that the code was compiled for."""

    name: str = LEVELS[-1]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._native = _native.Backend(self.name, self.threads)

    def matrix(self, tensor_type: TensorType, raw: Bytes) -> Matrix:
        """Prepare a matrix from raw rows; the memory of packed rows is rearranged in place."""
        inputs = raw.shape[1] // tensor_type.nbytes * tensor_type.block
        if tensor_type.name in _PACKED:
            packed: Matrix = self._native.pack(_PACKED[tensor_type.name], raw, inputs)
            return packed
        if tensor_type.name in _DENSE:
            return NativeDense(_DENSE[tensor_type.name], raw, inputs, tensor_type)
        nbytes = raw.shape[0] * inputs * 4
        if tensor_type.name in BLOCK_FORMATS or nbytes > self.expansion_bytes:
            return super().matrix(tensor_type, raw)
        self.expansion_bytes -= nbytes
        wide = dequantise(tensor_type, raw).view(np.uint8).reshape(raw.shape[0], -1)
        return NativeDense(_DENSE[F32.name], wide, inputs, F32)

    def form(self, matrix: Matrix) -> Hashable:
        """(group, order) for a packed matrix of this backend, the class for a float matrix."""
        if isinstance(matrix, _native.Packed):
            return matrix.group, matrix.order
        return NativeDense if isinstance(matrix, NativeDense) else super().form(matrix)

    def multiply(
        self, matrices: list[Matrix], x: Floats, rotation: canon.Rotation | None = None
    ) -> list[Floats]:
        """Products of matrices of one form in one parallel run."""
        turn = (0, None, None) if rotation is None else (rotation.block, rotation.signs, rotation.order)
        products: list[Floats]
        if isinstance(matrices[0], _native.Packed):
            products = self._native.multiply_packed(matrices, x, self.activation_bits, *turn)
        elif isinstance(matrices[0], _native.Dense):
            products = self._native.multiply_dense(matrices, x, *turn)
        else:
            products = super().multiply(matrices, x, rotation)
        return products

    def rms_norm(self, x: Floats, add: Floats | None, weight: Floats, epsilon: np.float32) -> Floats:
        """See NumpyKernels.rms_norm."""
        normed: Floats = self._native.rms_norm(x, add, weight, epsilon)
        return normed

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
        """See NumpyKernels.attend."""
        if query.shape[2] % 16 or value.shape[2] % 16 or query.shape[2] > _MAX_DIM:
            return super().attend(query, key, value, norms, rope, keys, values, position, scale)
        mixed: Floats = self._native.attend(
            query,
            key,
            value,
            norms.query,
            norms.key,
            norms.epsilon,
            rope.cosines,
            rope.sines,
            rope.adjacent,
            keys,
            values,
            position,
            scale,
        )
        return mixed

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
        """See NumpyKernels.delta_net."""
        if state.shape[1] > _MAX_DIM:
            return super().delta_net(inputs, gate, alpha, beta, recent, state, weights)
        w = weights
        out: Floats = self._native.delta_net(
            inputs, gate, alpha, beta, recent, state, w.convolution, w.a, w.dt, w.norm, w.epsilon
        )
        return out

    def unfold(self, z: Floats, rotation: canon.Rotation) -> Floats:
        """See NumpyKernels.unfold."""
        out: Floats = self._native.unfold(z, rotation.block, rotation.signs)
        return out

    def silu_product(self, gate: Floats, up: Floats) -> Floats:
        """See NumpyKernels.silu_product."""
        out: Floats = self._native.silu_product(gate, up)
        return out

    def sigmoid_product(self, gate: Floats, values: Floats) -> Floats:
        """See NumpyKernels.sigmoid_product."""
        out: Floats = self._native.sigmoid_product(gate, values)
        return out

    def read(self, data: Bytes) -> None:
        """Read a uint8 array once on all threads (what the benchmarks measure the memory with)."""
        self._native.read(data)
