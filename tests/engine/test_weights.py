from __future__ import annotations

import numpy as np
import pytest

from engine.errors import MetadataError, UnsupportedArchitectureError
from engine.gguf import parse_header
from engine.hadamard import HadamardContract
from engine.kernels import NumpyKernels
from engine.kernels.canon import Floats, Rotation
from engine.kernels.matrices import Matrix
from engine.layout import prove_layout
from engine.linear import Linear, Projections
from engine.weights import Weights
from tests.gguf_writer import F16, F32, Q8_0, GgufWriter

NUMBERS = np.arange(12, dtype=np.float32)
ONES = b"\x00\x3c" + b"\x01" * 32  # a Q8_0 block with scale 1


def store(
    writer: GgufWriter, contract: HadamardContract | None = None, kernels: NumpyKernels | None = None
) -> Weights:
    """The tensors of a written file."""
    data = writer.build()
    tensors = prove_layout(parse_header(data, len(data)), len(data), memoryview(data))
    return Weights(tensors, memoryview(data), kernels or NumpyKernels(1, 16), contract)


def sample() -> GgufWriter:
    """A vector, a matrix with trailing axes of one, a half vector and two layers."""
    return (
        GgufWriter()
        .tensor("norm", (12,), F32, NUMBERS.tobytes())
        .tensor("matrix", (4, 3, 1), F32, NUMBERS.tobytes())
        .tensor("half", (12,), F16, NUMBERS.astype("<f2").tobytes())
        .tensor("packed", (32, 1), Q8_0)
        .tensor("blk.0.x", (1,), F32)
        .tensor("blk.2.x", (1,), F32)
        .tensor("blk.10.y", (1,), F32)
        .tensor("blk.two.z", (1,), F32)
    )


def test_arrays_are_float32_in_numpy_order() -> None:
    """Shapes are outermost first, trailing axes of one do not matter, fp16 is widened."""
    weights = store(sample())
    np.testing.assert_array_equal(weights.array("norm", (12,)), NUMBERS)
    np.testing.assert_array_equal(weights.array("matrix", (3, 4)), NUMBERS.reshape(3, 4))
    half = weights.array("half", (12,))
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, NUMBERS)
    assert "norm" in weights
    assert "other" not in weights


def test_a_linear_multiplies_by_rows() -> None:
    """y = W x for a matrix [rows, inputs]."""
    weights = store(sample())
    linear = weights.linear("matrix", 4, 3)
    x = np.array([[1, 0, 0, 2]], np.float32)
    np.testing.assert_array_equal(linear(x), [[0 + 2 * 3, 4 + 2 * 7, 8 + 2 * 11]])


class CountingKernels(NumpyKernels):
    """Notes what the projections ask of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked: list[str] = []

    def multiply(self, matrices: list[Matrix], x: Floats, rotation: Rotation | None = None) -> list[Floats]:
        """As the backend's own."""
        self.asked.append(f"{len(matrices)} {'plain' if rotation is None else 'rotated'}")
        return super().multiply(matrices, x, rotation)


def test_projections_share_calls() -> None:
    """Neighbours of one rotation and form are one call, which rotates once."""
    signs = np.array([1, -1] * 16, np.float32)
    contract = HadamardContract(32, {32: signs}, frozenset("abd"), frozenset(), None)
    writer = GgufWriter()
    for name in "abcd":
        kind = F32 if name == "d" else Q8_0
        writer.tensor(name, (32, 1), kind, np.ones(32, np.float32).tobytes() if kind == F32 else ONES)
    kernels = CountingKernels(1, 16)
    weights = store(writer, contract, kernels)
    projections = Projections(*(weights.linear(name, 32, 1) for name in "abdc"))
    found = projections(np.ones((1, 32), np.float32))
    assert kernels.asked == ["2 rotated", "1 rotated", "1 plain"]
    # Every other sum of 16 ones and 16 minus ones is 0, but H puts sqrt(32) at the place of the sign pattern.
    assert [round(float(product[0, 0]), 4) for product in found] == [5.6569, 5.6569, 5.6569, 32]


def test_projections_of_one_input_keep_their_order() -> None:
    """Whether or not neighbours share a form, every projection gets its own product."""
    writer = GgufWriter()
    rows = np.arange(32, dtype=np.float32)
    for name in "abc":
        writer.tensor(f"dense_{name}", (32, 1), F32, (rows + ord(name)).tobytes())
    block = b"\x00\x3c" + bytes(range(32))  # Q8_0 with scale 1
    writer.tensor("packed", (32, 1), Q8_0, block)
    weights = store(writer)
    names = ("dense_a", "dense_b", "packed", "dense_c")
    first = np.eye(32, dtype=np.float32)[:1]
    found = Projections(*(weights.linear(name, 32, 1) for name in names))(first)
    assert [float(product[0, 0]) for product in found] == [97, 98, 0, 99]
    second = np.eye(32, dtype=np.float32)[1:2]
    found = Projections(*(weights.linear(name, 32, 1) for name in names))(second)
    assert [float(product[0, 0]) for product in found] == [98, 99, 1, 100]


def test_a_folded_matrix_gets_rotated_inputs() -> None:
    """With W' = H the product of H x is x itself."""
    matrix = np.array([[1, 1], [1, -1]], np.float32) / np.float32(np.sqrt(2))
    contract = HadamardContract(2, {2: np.ones(2, np.float32)}, frozenset({"w"}), frozenset(), None)
    weights = store(GgufWriter().tensor("w", (2, 2), F32, matrix.tobytes()), contract)
    linear = weights.linear("w", 2, 2)
    assert isinstance(linear, Linear)
    np.testing.assert_allclose(linear(np.array([[3, 5]], np.float32)), [[3, 5]])


def test_missing_tensors_and_wrong_shapes_are_refused() -> None:
    """The error names the tensor and both shapes in the file's order."""
    weights = store(sample())
    with pytest.raises(MetadataError, match="tensor lost is missing"):
        weights.array("lost", (1,))
    with pytest.raises(MetadataError, match=r"tensor matrix has shape \[4, 3, 1\], expected \[3, 4\]"):
        weights.matrix("matrix", 3, 4)
    with pytest.raises(MetadataError, match="norm"):
        weights.array("norm", (12, 1, 2))


def test_small_tensors_must_be_floats() -> None:
    """A quantised norm is not something any known file has."""
    with pytest.raises(UnsupportedArchitectureError, match="packed has type Q8_0"):
        store(sample()).array("packed", (1, 32))


def test_an_unused_tensor_is_an_error() -> None:
    """Skipped layers count as used; the first of what is left is named."""
    weights = store(sample())
    for name, shape in (("norm", (12,)), ("matrix", (3, 4)), ("half", (12,)), ("blk.0.x", (1,))):
        weights.array(name, shape)
    weights.matrix("packed", 32, 1)
    weights.skip_layers(2)
    with pytest.raises(UnsupportedArchitectureError, match=r"1 tensors .* the first is blk.two.z"):
        weights.close()
    weights.array("blk.two.z", (1,))
    weights.close()
