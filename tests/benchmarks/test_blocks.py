from __future__ import annotations

import numpy as np
import pytest

from benchmarks.blocks import DRAWS, TILE_BLOCKS, fill
from benchmarks.tensors import NORM, TensorPlan
from engine.tensor_types import BF16, F32, PQ2_0, Q1_0, Q2_0, TensorType
from tests.scalar_blocks import Block, decode_block

INPUTS = 1024
PACKED = [kind for kind in DRAWS if kind is not BF16]


def blocks_of(kind: TensorType, rows: int) -> list[Block]:
    """The blocks of a matrix as the scalar decoder reads them."""
    data = b"".join(fill(TensorPlan("name", (INPUTS, rows), kind)))
    starts = range(0, len(data), kind.nbytes)
    return [decode_block(kind.id, data[start : start + kind.nbytes]) for start in starts]


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_values(kind: TensorType) -> None:
    """Weights are centred and about 1 / sqrt(inputs)."""
    values = np.array([block.values(kind.id) for block in blocks_of(kind, 32)], np.float64)
    assert abs(values.mean()) < 0.1 / INPUTS**0.5
    assert values.std() == pytest.approx(1 / INPUTS**0.5, rel=0.1)


@pytest.mark.parametrize("kind", [Q2_0, PQ2_0], ids=lambda kind: kind.name)
def test_ternary(kind: TensorType) -> None:
    """Two-bit types have the codes 0 to 2 and never 3."""
    assert {code for block in blocks_of(kind, 4) for code in block.codes} == {0, 1, 2}


def test_length_and_rows() -> None:
    """A tensor longer than the tile is filled to its last byte, and no row equals the next."""
    plan = TensorPlan("name", (INPUTS, TILE_BLOCKS // 4), Q1_0)
    rows = np.frombuffer(b"".join(fill(plan)), np.uint8).reshape(plan.shape[1], -1)
    assert rows.nbytes == plan.nbytes
    assert np.any(rows[1:] != rows[:-1], axis=1).all()


def test_vectors() -> None:
    """Float tensors are uniform within their bounds and differ by name."""
    one, other = (b"".join(fill(TensorPlan(name, (256,), F32, NORM))) for name in ("a", "b"))
    values = np.frombuffer(one, "<f4")
    assert NORM[0] <= values.min() < values.max() <= NORM[1]
    assert one != other


def test_bfloats() -> None:
    """BF16 tensors hold the upper halves of ordinary numbers."""
    halves = np.frombuffer(b"".join(fill(TensorPlan("a", (INPUTS, 2), BF16))), "<u2")
    values = (halves.astype("<u4") << 16).view("<f4")
    assert values.std() == pytest.approx(1 / INPUTS**0.5, rel=0.1)
