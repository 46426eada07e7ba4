from __future__ import annotations

from benchmarks.bandwidth import ReadSpeed
from engine.kernels import NATIVE_LEVELS


def test_readers() -> None:
    """Every way to read this build has gives a speed that memory can have."""
    speeds = ReadSpeed(2, nbytes=1 << 24).measure()
    assert set(speeds) == ({"numpy", "native"} if NATIVE_LEVELS else {"numpy"})
    assert all(1e7 < speed < 1e13 for speed in speeds.values())
