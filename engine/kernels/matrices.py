"""Weight matrices as the NumPy backend holds them: the file's bytes, and float32 forms made from them.

A matrix keeps a view of the verified file's memory. Its expanded form, which the multiplications read, is
made a row range at a time; the backend decides whether it may be kept.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.kernels.canon import LANES, Floats
from engine.quantisation import BLOCK_FORMATS, Bytes, dequantise
from engine.tensor_types import TensorType


class Matrix(Protocol):
    """A weight matrix of any backend: `rows` outputs by `inputs`."""

    @property
    def rows(self) -> int:
        """Outputs."""

    @property
    def inputs(self) -> int:
        """Inputs."""

    def select(self, rows: list[int]) -> Floats:
        """The dequantised rows, float32 [len(rows), inputs] (the embedding look-up)."""


class PackedMatrix:
    """A matrix of block-quantised weights. Expanded: integer levels and scales in float32."""

    def __init__(self, tensor_type: TensorType, raw: Bytes) -> None:
        self.type = tensor_type
        self.raw = raw  # (rows, row bytes)
        self.rows: int = raw.shape[0]
        self.inputs: int = raw.shape[1] // tensor_type.nbytes * tensor_type.block
        self.group = tensor_type.block
        self.format = BLOCK_FORMATS[tensor_type.name]

    @property
    def expanded_bytes(self) -> int:
        """Memory of the expanded form."""
        return self.rows * self.inputs * 4 + self.rows * self.inputs // self.group * 8

    def expand(self, start: int, stop: int) -> tuple[Floats, Floats, Floats | None]:
        """Levels [blocks, rows, group] = step * code - zero; scales and minimums [blocks, rows]."""
        blocks = self.raw[start:stop].reshape(stop - start, -1, self.type.nbytes).transpose(1, 0, 2)
        codes = self.format.codes(np.ascontiguousarray(blocks))
        levels = codes.astype(np.float32)
        if self.format.step != 1:
            levels *= np.float32(self.format.step)
        if self.format.zero:
            levels -= np.float32(self.format.zero)
        return levels, self.format.scales(blocks), self.format.minimums(blocks)

    @property
    def largest_level(self) -> int:
        """Largest magnitude of a level."""
        return max(self.format.zero, self.format.step * self.format.largest - self.format.zero)

    def select(self, rows: list[int]) -> Floats:
        """The dequantised rows, float32 [len(rows), inputs]."""
        return dequantise(self.type, self.raw[rows])


class DenseMatrix:
    """A matrix of float weights, or of a type that only dequantisation reads. Expanded: lane-major."""

    def __init__(self, tensor_type: TensorType, raw: Bytes) -> None:
        self.type = tensor_type
        self.raw = raw
        self.rows: int = raw.shape[0]
        self.inputs: int = raw.shape[1] // tensor_type.nbytes * tensor_type.block

    @property
    def expanded_bytes(self) -> int:
        """Memory of the expanded form."""
        return self.rows * (self.inputs + -self.inputs % LANES) * 4

    def expand(self, start: int, stop: int) -> Floats:
        """Weights [inputs / 16, 16, rows] in float32, inputs padded with zeros."""
        weights = dequantise(self.type, self.raw[start:stop])
        padded = np.zeros((stop - start, self.inputs + -self.inputs % LANES), np.float32)
        padded[:, : self.inputs] = weights
        return np.ascontiguousarray(padded.T).reshape(-1, LANES, stop - start)

    def select(self, rows: list[int]) -> Floats:
        """The dequantised rows, float32 [len(rows), inputs]."""
        return dequantise(self.type, self.raw[rows])
