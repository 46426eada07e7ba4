"""Gated DeltaNet (Yang et al., 2024) as the `qwen35` graph uses it: a recurrent memory of fixed size.

The recurrence runs token by token; with the state of one head in cache that is also the fast order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.graphs.graph import Span
from engine.kernels import Kernels
from engine.kernels.canon import DeltaWeights, Floats
from engine.linear import Linear, Projections
from engine.memory import DeltaMemory, Room


@dataclass(frozen=True)
class DeltaShape:
    """Key heads, value heads, the dimension of both, and the taps of the convolution."""

    key_heads: int
    value_heads: int
    dim: int
    taps: int

    @property
    def key_width(self) -> int:
        """Width of all keys (and of all queries)."""
        return self.key_heads * self.dim

    @property
    def value_width(self) -> int:
        """Width of all values."""
        return self.value_heads * self.dim

    @property
    def channels(self) -> int:
        """Width of queries, keys and values together, which the convolution runs over."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True)
class DeltaNet:
    """Projections around `kernels.delta_net`, which says what is computed."""

    shape: DeltaShape
    inputs: Projections  # qkv, gate, alpha, beta
    output: Linear
    weights: DeltaWeights
    kernels: Kernels

    def __call__(self, x: Floats, spans: Sequence[Span], layer: int) -> Floats:
        """Outputs [tokens, width]; advances the spans' memories."""
        projected = self.inputs(x)
        parts = []
        for span in spans:
            memory = span.memories[layer]
            assert isinstance(memory, DeltaMemory)
            inputs, gate, alpha, beta = (array[span.rows] for array in projected)
            parts.append(
                self.kernels.delta_net(inputs, gate, alpha, beta, memory.recent, memory.state, self.weights)
            )
        return self.output(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def new_memory(self, context: int, room: Room) -> DeltaMemory:
        """The size does not depend on the context."""
        del context
        shape = self.shape
        return DeltaMemory(
            room.take((shape.value_heads, shape.dim, shape.dim)),
            room.take((shape.taps - 1, shape.channels)),
        )

    def memory_bytes(self, context: int) -> int:
        """Bytes of the recurrent state and the convolution's recent inputs."""
        del context
        shape = self.shape
        return 4 * (shape.value_heads * shape.dim**2 + (shape.taps - 1) * shape.channels)

    @property
    def checkpoint_bytes(self) -> int:
        """The whole memory is copied; what `new_memory` takes of a room."""
        return self.memory_bytes(0)
