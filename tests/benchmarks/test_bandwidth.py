from __future__ import annotations

import pytest

from benchmarks import bandwidth
from benchmarks.bandwidth import ReadSpeed
from engine.kernels import KERNEL_NAMES, NATIVE_LEVELS, NumpyKernels, choose_kernels


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_the_faster_reader_gives_a_speed_that_memory_can_have(name: str) -> None:
    """It is one that this build has, whichever kernels compute."""
    kernels = choose_kernels(name, 2, 16)
    speed = ReadSpeed(kernels, memoryview(bytearray(1 << 24)))
    assert speed.reader in ({"numpy", "native"} if NATIVE_LEVELS else {"numpy"})
    nbytes, seconds = speed.measure()
    assert 1e7 < nbytes / seconds < 1e13


def test_stretches_follow_each_other_and_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal parts of whole words, as few as the limit allows; no trial is left out of the order."""
    monkeypatch.setattr(bandwidth, "STRETCH_BYTES", 64)
    monkeypatch.setattr(bandwidth, "NATIVE_LEVELS", ())
    speed = ReadSpeed(NumpyKernels(1, 8), memoryview(bytearray(64 + 64 + 16 + 5)))
    assert bandwidth.TRIALS == 3
    assert [speed.measure()[0] for _ in range(4)] == [48, 48, 48, 48]
    speed = ReadSpeed(NumpyKernels(1, 8), memoryview(bytearray(64 + 8)))
    assert [speed.measure()[0] for _ in range(3)] == [32, 40, 32]
