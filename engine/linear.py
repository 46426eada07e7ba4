"""Projections: a weight matrix with the rotation its input needs, and inputs that share what they derive.

Several projections read one activation (query, key and value; gate and up), and each may need it rotated
and rounded to integers. `Features` derives each form once, and `Projections` multiplies in one call what
shares a form.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from engine.hadamard import Rotation
from engine.kernels import Kernels
from engine.kernels.canon import Floats
from engine.kernels.matrices import Matrix


class Features:
    """Activations float32 [tokens, width], with their rotated and integer forms made on first use."""

    __slots__ = ("_forms", "kernels", "values")

    def __init__(self, values: Floats, kernels: Kernels) -> None:
        self.values = values
        self.kernels = kernels
        self._forms: dict[tuple[Rotation | None, Hashable], Any] = {(None, None): values}

    def in_form(self, rotation: Rotation | None, form: Hashable) -> Any:
        """These activations as a matrix folded with `rotation` multiplies them in `form`."""
        key = (rotation, form)
        found = self._forms.get(key)
        if found is None:
            if form is None:
                assert rotation is not None
                found = rotation.apply(self.values, self.kernels)
            else:
                values = self.values if rotation is None else self.in_form(rotation, None)
                found = self.kernels.integers(values, form)
            self._forms[key] = found
        return found


@dataclass(frozen=True)
class Linear:
    """y = W x without bias, for a matrix [rows, inputs] that may be folded."""

    matrix: Matrix
    rotation: Rotation | None
    form: Hashable  # what the backend multiplies this matrix with

    def __call__(self, x: Features) -> Floats:
        """Products float32 [tokens, rows]."""
        return x.kernels.multiply([self.matrix], x.in_form(self.rotation, self.form))[0]


class Projections:
    """Several projections of one input; neighbours that share a form are multiplied in one call."""

    def __init__(self, *linears: Linear) -> None:
        self._runs: list[tuple[Rotation | None, Hashable, list[Matrix]]] = []
        for linear in linears:
            if self._runs and self._runs[-1][:2] == (linear.rotation, linear.form):
                self._runs[-1][2].append(linear.matrix)
            else:
                self._runs.append((linear.rotation, linear.form, [linear.matrix]))

    def __call__(self, x: Features) -> list[Floats]:
        """The products of each projection, float32 [tokens, rows]."""
        out: list[Floats] = []
        for rotation, form, matrices in self._runs:
            out += x.kernels.multiply(matrices, x.in_form(rotation, form))
        return out
