from __future__ import annotations

import pytest

from benchmarks.shapes import SHAPES
from benchmarks.tensors import is_folded, plan_tensors
from engine import tensor_types as types
from engine.tensor_types import TensorType

ALIGNMENT = 32


def data_bytes(shape: str, kind: TensorType, folded: bool = False) -> int:
    """Bytes of a file's tensor data with padding."""
    plans = plan_tensors(SHAPES[shape], kind, folded)
    return sum(plan.nbytes + -plan.nbytes % ALIGNMENT for plan in plans)


def test_parameters_of_27b() -> None:
    """The shape 27b has the tensors and parameters of the released model."""
    plans = plan_tensors(SHAPES["27b"], types.Q1_0, folded=False)
    assert len(plans) == 851
    assert sum(plan.elements for plan in plans) == 26_895_998_464


@pytest.mark.parametrize(
    ("kind", "folded", "nbytes"),
    [
        (types.Q1_0, False, 3_792_459_776),
        (types.Q2_0, False, 7_574_337_536),
        (types.PQ2_0, False, 7_154_128_896),
        (types.PQ2_0, True, 7_195_047_936),
        (types.PTQ1_0, True, 5_935_527_936),
    ],
)
def test_sizes_of_27b(kind: TensorType, folded: bool, nbytes: int) -> None:
    """Tensor data of 27b take as many bytes as in the released files, alpha and beta in BF16 if folded."""
    assert data_bytes("27b", kind, folded) == nbytes


@pytest.mark.parametrize(
    ("shape", "tensors", "mebibytes"), [("1.7b", 310, 231.13), ("4b", 398, 540.09), ("8b", 399, 1099.30)]
)
def test_sizes_of_small_shapes(shape: str, tensors: int, mebibytes: float) -> None:
    """The Q1_0 files of the small shapes have the tensors and data sizes of the released ones."""
    assert len(plan_tensors(SHAPES[shape], types.Q1_0, folded=False)) == tensors
    assert data_bytes(shape, types.Q1_0) / 2**20 == pytest.approx(mebibytes, abs=0.005)


def test_folded_tensors_of_27b() -> None:
    """Folded are the 401 tensors that the released contract names: not alpha, beta, or the embedding."""
    names = [plan.name for plan in plan_tensors(SHAPES["27b"], types.PQ2_0, folded=True)]
    folded = [name for name in names if is_folded(name)]
    assert len(folded) == 401
    assert not any("alpha" in name or "beta" in name or "embd" in name for name in folded)
