from __future__ import annotations

import numpy as np
import pytest

from benchmarks.stopwatch import Stopwatch
from engine.kernels import KERNEL_NAMES, choose_kernels
from engine.tensor_types import Q1_0
from tests.models import random_blocks


@pytest.mark.parametrize("name", [KERNEL_NAMES[0], KERNEL_NAMES[-1]])
def test_counts_calls(name: str) -> None:
    """Each operation is counted once with what it calls itself, and gives what it gave before."""
    kernels = choose_kernels(name, 1, 16)
    raw = np.frombuffer(bytearray(random_blocks(np.random.default_rng(1), Q1_0.id, 32, 256)), np.uint8)
    matrix = kernels.matrix(Q1_0, raw.reshape(32, -1))
    x = np.random.default_rng(2).standard_normal((1, 256)).astype(np.float32)

    def products() -> list[bytes]:
        return [product.tobytes() for product in kernels.multiply([matrix, matrix], x)]

    expected = products()
    watch = Stopwatch()
    watch.attach(kernels)
    assert products() == expected
    assert products() == expected
    assert list(watch.calls.values()) == [2]
    assert any(label.endswith(" 256→32+32") for label in watch.calls)
    assert all(seconds > 0 for seconds in watch.seconds.values())
    watch.clear()
    assert not watch.calls


def test_failed_call() -> None:
    """An operation that raises is timed all the same, and the next one too."""
    watch = Stopwatch()
    with pytest.raises(ZeroDivisionError):
        watch.timed("divide", lambda x: 1 / x)(0)
    assert watch.timed("divide", lambda x: 1 / x)(2) == 0.5
    assert watch.calls["divide"] == 2
