"""Gated DeltaNet (Yang et al., 2024) as the `qwen35` graph uses it: a recurrent memory of fixed size.

The recurrence runs token by token; with the state of one head in cache that is also the fast order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.graphs.graph import Span
from engine.kernels import Kernels
from engine.kernels.canon import Floats
from engine.linear import Linear, Projections
from engine.memory import DeltaMemory


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
    """q, k, v = silu(conv(qkv x)); g = a softplus(alpha x + dt); beta = sigmoid(beta x); delta rule; norm.

    The normed result is multiplied by silu(gate x). `a` is stored as -exp(A_log), so g <= 0 and exp(g) is
    the decay.
    """

    shape: DeltaShape
    inputs: Projections  # qkv, gate, alpha, beta
    output: Linear
    convolution: Floats  # (taps, channels), the last tap is the current token
    a: Floats  # (value heads,)
    dt: Floats  # (value heads,)
    norm: Floats  # (dim,)
    epsilon: np.float32
    kernels: Kernels

    def __call__(self, x: Floats, spans: Sequence[Span], layer: int) -> Floats:
        """Outputs [tokens, width]; advances the spans' memories."""
        shape, kernels = self.shape, self.kernels
        raw, gate, alpha, beta = self.inputs(x)
        decay, strength = kernels.gates(alpha, beta, self.a, self.dt)
        parts = []
        for span in spans:
            memory = span.memories[layer]
            assert isinstance(memory, DeltaMemory)
            inputs = np.concatenate((memory.recent, raw[span.rows]))
            memory.recent[:] = inputs[len(inputs) - (shape.taps - 1) :]
            heads = self._heads(kernels.convolve(inputs, self.convolution))
            rows = span.rows
            parts.append(kernels.delta_rule(memory.state, *heads, decay[rows], strength[rows]))
        mixed = parts[0] if len(parts) == 1 else np.concatenate(parts)
        normed = kernels.rms_norm(mixed, None, self.norm, self.epsilon).reshape(mixed.shape[0], -1)
        return self.output(kernels.silu_product(gate, normed))

    def _heads(self, convolved: Floats) -> tuple[Floats, Floats, Floats]:
        """Queries and keys of unit length (queries also divided by sqrt(dim)), and values, by head."""
        shape = self.shape
        ends = (shape.key_width, 2 * shape.key_width)
        query = convolved[:, : ends[0]].reshape(-1, shape.key_heads, shape.dim)
        key = convolved[:, ends[0] : ends[1]].reshape(-1, shape.key_heads, shape.dim)
        value = convolved[:, ends[1] :].reshape(-1, shape.value_heads, shape.dim)
        return (
            self.kernels.unit_heads(query, self.epsilon, np.float32(shape.dim**-0.5)),
            self.kernels.unit_heads(key, self.epsilon, np.float32(1)),
            np.ascontiguousarray(value),
        )

    def new_memory(self, context: int) -> DeltaMemory:
        """Zeros; the size does not depend on the context."""
        del context
        shape = self.shape
        return DeltaMemory(
            np.zeros((shape.value_heads, shape.dim, shape.dim), np.float32),
            np.zeros((shape.taps - 1, shape.channels), np.float32),
        )

    def memory_bytes(self, context: int) -> int:
        """Bytes of the recurrent state and the convolution's recent inputs."""
        del context
        shape = self.shape
        return 4 * (shape.value_heads * shape.dim**2 + (shape.taps - 1) * shape.channels)

    @property
    def checkpoint_bytes(self) -> int:
        """The whole memory is copied."""
        return self.memory_bytes(0)
