"""What the layers of one sequence remember: keys and values, or the recurrent state of a delta rule.

Keys and values are only ever appended, so what lies before a length stays valid while nothing is written
below it; a recurrent memory changes in place, so going back needs a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.kernels.canon import Floats

Halves = NDArray[np.float16]
Arrays = tuple[NDArray[Any], ...]


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
