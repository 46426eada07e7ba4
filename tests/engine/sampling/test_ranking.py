from __future__ import annotations

import numpy as np
import pytest

from engine import kernels
from engine.sampling import rank
from tests.engine.sampling.draws import row


def test_top_k_keeps_the_lowest_ids_of_a_tie() -> None:
    """Rank is by logit, then by id."""
    logits = row(1, 2, 1, 2, 1)
    assert rank(logits, 3).tolist() == [1, 3, 0]
    assert rank(logits, 0).tolist() == [1, 3, 0, 2, 4]
    assert rank(logits, 5).tolist() == rank(logits, 6).tolist() == [1, 3, 0, 2, 4]
    assert rank(logits, 1).tolist() == [1]


def test_signed_zeros_tie() -> None:
    """And masked ids come last, in order."""
    assert rank(row(-0.0, 0.0, -1, 0.0, -0.0), 0).tolist() == [0, 1, 3, 4, 2]
    assert rank(row(-np.inf, 3, -np.inf, -1e-45, 1e-45), 0).tolist() == [1, 4, 3, 0, 2]


@pytest.fixture(params=["as built", "without native kernels"], autouse=True)
def ranking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here runs with the native ranking, where it was built, and with NumPy's."""
    if request.param == "without native kernels":
        monkeypatch.setattr(kernels, "highest_ids", None)


@pytest.mark.parametrize("count", [0, 1, 20, 1000, 4999, 5000])
@pytest.mark.parametrize("levels", [7, 100_000])
@pytest.mark.parametrize("order", ["any", "falling", "rising"])
def test_ranks_are_those_of_a_stable_sort(count: int, levels: int, order: str) -> None:
    """NumPy's own, over as many ids as a small vocabulary has, with many ties and with few."""
    generator = np.random.default_rng(levels)
    values = generator.standard_normal(levels).astype(np.float32) * 8
    logits = values[generator.integers(0, levels, 5000)]
    if order != "any":
        logits = np.sort(logits)[:: 1 if order == "rising" else -1]
    expected = np.argsort(-logits, kind="stable")
    assert rank(logits, count).tolist() == expected[: count or None].tolist()
