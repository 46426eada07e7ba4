"""Projections: a weight matrix with the rotation its input needs, and several that read one input.

Several projections read one activation (query, key and value; gate and up). What they share is done once:
an input is rotated once for all that are folded alike, and neighbours whose matrices the backend reads in
one form are multiplied in one call.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from engine.hadamard import Rotation
from engine.kernels import Kernels
from engine.kernels.canon import Floats
from engine.kernels.matrices import Matrix


@dataclass(frozen=True)
class Linear:
    """y = W x without bias, for a matrix [rows, inputs] that may be folded."""

    matrix: Matrix
    rotation: Rotation | None
    kernels: Kernels

    def __call__(self, x: Floats) -> Floats:
        """Products float32 [tokens, rows] of x [tokens, inputs]."""
        rotated = x if self.rotation is None else self.rotation.apply(x, self.kernels)
        return self.kernels.multiply([self.matrix], rotated)[0]


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
        rotation, rotated = None, x
        for wanted, matrices in self._runs:
            if wanted is not rotation:
                rotation = wanted
                rotated = x if wanted is None else wanted.apply(x, self._kernels)
            out += self._kernels.multiply(matrices, rotated)
        return out
