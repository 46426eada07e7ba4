"""Projections: a weight matrix with the rotation its input needs, and inputs that share what they derive.

Several projections read one activation (query, key and value; gate and up), and each may need it rotated
and rounded to integers. `Features` derives each form once, and `project` multiplies in one call what
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

    def __init__(self, values: Floats, kernels: Kernels) -> None:
        self.values = values
        self.kernels = kernels
        self._forms: dict[tuple[Rotation | None, Hashable], Any] = {(None, None): values}

    def in_form(self, rotation: Rotation | None, form: Hashable) -> Any:
        """These activations as a matrix folded with `rotation` multiplies them in `form`."""
        key = (rotation, form)
        found = self._forms.get(key)
        if found is None:
            if form is not None:
                found = self.kernels.integers(self.in_form(rotation, None), form)
            else:
                assert rotation is not None
                found = rotation.apply(self.values, self.kernels)
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
        return x.kernels.multiply((self.matrix,), x.in_form(self.rotation, self.form))[0]


def project(x: Features, *linears: Linear) -> list[Floats]:
    """The products of several projections of one input, those next to each other in one call."""
    out: list[Floats] = []
    first = 0
    while first < len(linears):
        rotation, form = linears[first].rotation, linears[first].form
        last = first + 1
        while last < len(linears) and linears[last].rotation is rotation and linears[last].form == form:
            last += 1
        matrices = tuple(linear.matrix for linear in linears[first:last])
        out += x.kernels.multiply(matrices, x.in_form(rotation, form))
        first = last
    return out
