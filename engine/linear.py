"""Projections: a weight matrix with the rotation its input needs, and inputs that share what they derive.

Several projections read one activation (query, key and value; gate and up), and each may need it rotated
and rounded to integers. `Features` derives each form once.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.hadamard import Rotation
from engine.kernels import Kernels
from engine.kernels.canon import Floats, Quantised
from engine.kernels.matrices import DenseMatrix, Matrix, PackedMatrix


class Features:
    """Activations float32 [tokens, width], with their rotated and integer forms made on first use."""

    def __init__(self, values: Floats, kernels: Kernels) -> None:
        self.values = values
        self._kernels = kernels
        self._rotated: dict[Rotation, Features] = {}
        self._quantised: dict[int, Quantised] = {}

    def rotated(self, rotation: Rotation | None) -> Features:
        """These activations as a matrix folded with `rotation` takes them."""
        if rotation is None:
            return self
        if rotation not in self._rotated:
            self._rotated[rotation] = Features(rotation.apply(self.values), self._kernels)
        return self._rotated[rotation]

    def quantised(self, group: int) -> Quantised:
        """Integer activations with one scale a `group` of inputs."""
        if group not in self._quantised:
            self._quantised[group] = self._kernels.quantise(self.values, group)
        return self._quantised[group]


@dataclass(frozen=True)
class Linear:
    """y = W x without bias, for a matrix [rows, inputs] that may be folded."""

    matrix: Matrix
    rotation: Rotation | None
    kernels: Kernels

    def __call__(self, x: Features) -> Floats:
        """Products float32 [tokens, rows]."""
        inputs = x.rotated(self.rotation)
        if isinstance(self.matrix, PackedMatrix):
            return self.kernels.multiply_packed(self.matrix, inputs.quantised(self.matrix.group))
        assert isinstance(self.matrix, DenseMatrix)
        return self.kernels.multiply_dense(self.matrix, inputs.values)
