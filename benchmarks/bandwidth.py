"""The speed at which this machine's memory can be read, by as many threads as the engine uses.

The yardstick is a plain read of a buffer far larger than the caches, on huge pages where the system grants
them. Two readers try, the best native kernel and NumPy, since either may be the faster one on a machine;
the faster one counts, whichever kernel is measured against it.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from engine.kernels import NATIVE_LEVELS, choose_kernels
from engine.quantisation import Bytes

BUFFER_BYTES = 1 << 30
PASSES = 3
NUMPY_CHUNK_BYTES = 1 << 25  # a call of NumPy costs too much for smaller ones

Reader = Callable[[Bytes], Any]


class ReadSpeed:
    """A buffer, and the ways to read it by name."""

    def __init__(self, threads: int, nbytes: int = BUFFER_BYTES) -> None:
        self._data = _buffer(nbytes)
        self._readers: dict[str, Reader] = {"numpy": _numpy_reader(threads)}
        if NATIVE_LEVELS:
            kernels: Any = choose_kernels(NATIVE_LEVELS[-1], threads, 8)
            self._readers["native"] = kernels.read

    def measure(self) -> dict[str, float]:
        """Bytes a second of each reader, the best of a few passes."""
        return {name: max(self._pass(read) for _ in range(PASSES)) for name, read in self._readers.items()}

    def _pass(self, read: Reader) -> float:
        started = time.perf_counter()
        read(self._data)
        return self._data.nbytes / (time.perf_counter() - started)


def _buffer(nbytes: int) -> Bytes:
    """Private memory, written to so that it really exists."""
    if sys.platform == "win32":
        memory = mmap.mmap(-1, nbytes)
    else:
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    data = np.frombuffer(memory, np.uint8)
    data[:] = 1
    return data


def _numpy_reader(threads: int) -> Reader:
    pool = ThreadPoolExecutor(threads, "reader")

    def read(data: Bytes) -> None:
        words = data.view(np.uint64)
        step = NUMPY_CHUNK_BYTES // words.itemsize
        chunks = (words[start : start + step] for start in range(0, len(words), step))
        for _ in pool.map(np.bitwise_xor.reduce, chunks):
            pass

    return read
