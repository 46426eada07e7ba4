"""What the layers of one sequence remember: keys and values, or the recurrent state of a delta rule.

Keys and values are only ever appended, so what lies before a length stays valid while nothing is written
below it; a recurrent memory changes in place, so going back needs a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.kernels.canon import Floats

Halves = NDArray[np.float16]
Arrays = tuple[NDArray[Any], ...]

_LINE_BYTES = 64


def line_aligned(nbytes: int) -> NDArray[np.uint8]:
    """Memory of unknown contents that starts a cache line, so that no vector of a row lies in two.

    From 4 MB on, NumPy asks Linux for huge pages.
    """
    memory = np.empty(nbytes + _LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % _LINE_BYTES
    return memory[start : start + nbytes]


class Room:
    """The memory of all recurrent layers of a sequence in one piece, which huge pages can hold."""

    def __init__(self, nbytes: int) -> None:
        self._left = line_aligned(nbytes).view(np.float32)

    def take(self, shape: Sequence[int]) -> Floats:
        """The next array, of unknown contents."""
        size = math.prod(shape)
        taken, self._left = self._left[:size].reshape(shape), self._left[size:]
        return taken


class LayerMemory(Protocol):
    """The memory of one layer of one sequence."""

    @property
    def recurrent(self) -> bool:
        """Whether going back to a shorter sequence needs a copy."""

    def views(self, start: int, stop: int) -> Arrays:
        """The arrays that hold positions `start` to `stop`; a recurrent memory gives all of itself."""


@dataclass
class AttentionMemory:
    """Keys [context, kv heads, dim] and values of all positions so far, fp16."""

    keys: Halves
    values: Halves
    recurrent: bool = False

    def views(self, start: int, stop: int) -> Arrays:
        """Keys and values of the positions."""
        return self.keys[start:stop], self.values[start:stop]


@dataclass
class DeltaMemory:
    """A delta rule's `state` [value heads, key dim, value dim] and the convolution's last inputs."""

    state: Floats
    recent: Floats  # (taps - 1, channels)
    recurrent: bool = True

    def views(self, start: int, stop: int) -> Arrays:
        """State and recent inputs, whatever the positions."""
        del start, stop
        return self.state, self.recent
