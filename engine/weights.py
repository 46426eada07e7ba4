"""The tensors of a verified file by name, handed to a graph with their shapes checked.

A graph takes every tensor it needs and then closes the store; a tensor that nobody took is an error, since
ignoring part of a model would change what it says without a sign.
"""

from __future__ import annotations

import numpy as np

from engine import tensor_types as types
from engine.errors import MetadataError, UnsupportedArchitectureError
from engine.hadamard import HadamardContract
from engine.kernels import Kernels
from engine.kernels.canon import Floats, Indices, Rotation
from engine.kernels.matrices import Matrix
from engine.layout import Tensor
from engine.linear import Linear
from engine.quantisation import Bytes, dequantise


class Weights:
    """Tensors over the file's private memory; matrices are prepared by `kernels`."""

    def __init__(
        self,
        tensors: dict[str, Tensor],
        data: memoryview,
        kernels: Kernels,
        contract: HadamardContract | None,
    ) -> None:
        self._tensors = tensors
        self._bytes = np.frombuffer(data, np.uint8)
        self._taken: set[str] = set()
        self.kernels = kernels
        self.contract = contract

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def linear(self, name: str, inputs: int, rows: int, order: Indices | None = None) -> Linear:
        """The projection of matrix `name` [rows, inputs]; `order` permutes a folded matrix's inputs first."""
        matrix = self.matrix(name, inputs, rows)
        return Linear(matrix, self.rotation(name, inputs, order), self.kernels)

    def matrix(self, name: str, inputs: int, rows: int) -> Matrix:
        """The matrix `name` [rows, inputs]."""
        tensor = self._take(name, (inputs, rows))
        return self.kernels.matrix(tensor.type, self._raw(tensor))

    def rotation(self, name: str, inputs: int, order: Indices | None = None) -> Rotation | None:
        """How the contract rotates the input of tensor `name`, if it does."""
        return None if self.contract is None else self.contract.rotation(name, inputs, order)

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """A small float tensor as float32; `shape` in NumPy order, outermost first."""
        tensor = self._take(name, tuple(reversed(shape)))
        if tensor.type not in (types.F32, types.F16, types.BF16):
            raise UnsupportedArchitectureError(f"tensor {name} has type {tensor.type.name}; expected a float")
        return dequantise(tensor.type, self._raw(tensor)).reshape(shape)

    def skip_layers(self, first: int) -> None:
        """Leave out every tensor of layers `first` and above (trailing prediction blocks)."""
        for name in self._tensors:
            parts = name.split(".")
            if parts[0] == "blk" and len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) >= first:
                self._taken.add(name)

    def close(self) -> None:
        """Raise UnsupportedArchitectureError if the graph left a tensor of the file unused."""
        left = sorted(self._tensors.keys() - self._taken)
        if left:
            raise UnsupportedArchitectureError(
                f"{len(left)} tensors of the file have no place in its graph, the first is {left[0]}"
            )

    def _take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise MetadataError(f"tensor {name} is missing")
        found = tensor.shape
        while len(found) > len(shape) and found[-1] == 1:
            found = found[:-1]
        if found != shape:
            raise MetadataError(f"tensor {name} has shape {list(tensor.shape)}, expected {list(shape)}")
        self._taken.add(name)
        return tensor

    def _raw(self, tensor: Tensor) -> Bytes:
        rows = tensor.nbytes // tensor.type.row_bytes(tensor.shape[0])
        return self._bytes[tensor.start : tensor.start + tensor.nbytes].reshape(rows, -1)
