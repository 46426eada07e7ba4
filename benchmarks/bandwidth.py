"""The speed at which a model's memory can be read, by as many threads as the engine uses.

The yardstick is a plain read of the memory in which the weights lie, a stretch after the other: a virtual
machine can have memory of several speeds. Two readers try, the best native kernel and NumPy, since either may
be the faster one on a machine; the faster one measures from then on, whichever kernel is measured against it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import numpy as np

from engine.kernels import NATIVE_LEVELS, Kernels, choose_kernels
from engine.quantisation import Bytes

STRETCH_BYTES = 1 << 29  # of one reading at most; still far larger than the caches
TRIALS = 3
NUMPY_CHUNK_BYTES = 1 << 25  # a call of NumPy costs too much for smaller ones

Reader = Callable[[Bytes], Any]


class ReadSpeed:
    """Reads `data` by as many threads as `kernels` have; `reader` names the faster way."""

    def __init__(self, kernels: Kernels, data: memoryview) -> None:
        words = np.frombuffer(data, np.uint64, len(data) // 8)
        stretches = np.array_split(words, math.ceil(words.nbytes / STRETCH_BYTES))
        self._stretches = cycle([stretch.view(np.uint8) for stretch in stretches])
        readers: dict[str, Reader] = {"numpy": _numpy_reader(kernels.threads)}
        native: Any = kernels  # whose threads wait for work a while, in the way of any others
        if NATIVE_LEVELS and kernels.name not in NATIVE_LEVELS:
            native = choose_kernels(NATIVE_LEVELS[-1], kernels.threads, 8)
        if NATIVE_LEVELS:
            readers["native"] = native.read
        best = {name: max(self._speed(read) for _ in range(TRIALS)) for name, read in readers.items()}
        self.reader = max(best, key=best.__getitem__)
        self._read = readers[self.reader]

    def measure(self) -> tuple[int, float]:
        """Read the next stretch: its bytes, and the seconds that took."""
        stretch = next(self._stretches)
        started = time.perf_counter()
        self._read(stretch)
        return len(stretch), time.perf_counter() - started

    def _speed(self, read: Reader) -> float:
        self._read = read
        nbytes, seconds = self.measure()
        return nbytes / seconds


def _numpy_reader(threads: int) -> Reader:
    pool = ThreadPoolExecutor(threads, "reader")

    def read(data: Bytes) -> None:
        words = data.view(np.uint64)
        step = NUMPY_CHUNK_BYTES // words.itemsize
        chunks = (words[start : start + step] for start in range(0, len(words), step))
        for _ in pool.map(np.bitwise_xor.reduce, chunks):
            pass

    return read
