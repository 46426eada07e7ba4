"""Projections: a weight matrix with the rotation its input needs, and several that read one input.

Several projections read one activation (query, key and value; gate and up). Neighbours that are folded alike
and whose matrices the backend reads in one form are multiplied in one call, which rotates their input once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from engine.kernels import Kernels
from engine.kernels.canon import Floats, Rotation
from engine.kernels.matrices import Matrix


@dataclass(frozen=True)
class Linear:
    """y = W x without bias, for a matrix [rows, inputs] that may be folded."""

    matrix: Matrix
    rotation: Rotation | None
    kernels: Kernels

    def __call__(self, x: Floats) -> Floats:
        """Products float32 [tokens, rows] of x [tokens, inputs]."""
        return self.kernels.multiply([self.matrix], x, self.rotation)[0]


class Projections:
    """Several projections of one input."""

    def __init__(self, *linears: Linear) -> None:
        self._kernels = linears[0].kernels
        self._runs: list[tuple[Rotation | None, list[Matrix]]] = []
        last: tuple[Rotation | None, Hashable] | None = None
        for linear in linears:
            key = (linear.rotation, self._kernels.form(linear.matrix))
            if key == last:
                self._runs[-1][1].append(linear.matrix)
            else:
                self._runs.append((linear.rotation, [linear.matrix]))
            last = key

    def __call__(self, x: Floats) -> list[Floats]:
        """The products of each projection with x [tokens, inputs], float32 [tokens, rows]."""
        out: list[Floats] = []
        for rotation, matrices in self._runs:
            out += self._kernels.multiply(matrices, x, rotation)
        return out
