from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.bandwidth import ReadSpeed
from benchmarks.rounds import measure
from engine.kernels import NumpyKernels


def test_a_share_is_of_the_readings_of_its_own_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bandwidth is all bytes of a round over all their seconds, and the share that of the median round."""
    speed = ReadSpeed(NumpyKernels(1, 8), memoryview(bytes(64)))
    readings = iter([(4096, 1.0), (4096, 3.0), (6000, 2.0), (2192, 2.0), (4096, 8.0), (4096, 8.0)])
    monkeypatch.setattr(speed, "measure", lambda: next(readings))
    rates = iter([2.0, 8.0, 1.0])

    def ours(read: Callable[[], None]) -> float:
        read()
        read()
        return next(rates)

    rounds = measure(3, speed, ours, None, ())
    assert rounds.bandwidths == [2048, 2048, 512]
    assert rounds.bandwidth == 2048
    assert rounds.share(512) == 1  # of 0.5, 2 and 1
