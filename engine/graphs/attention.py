"""Full attention with grouped key and value heads, optional head norms and an optional output gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.graphs.graph import Span
from engine.graphs.rope import RopeTable
from engine.kernels import Kernels
from engine.kernels.canon import Floats, rms_norm
from engine.linear import Features, Linear
from engine.memory import AttentionMemory


@dataclass(frozen=True)
class AttentionShape:
    """Head counts and the two head dimensions."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True)
class Attention:
    """softmax(q kᵀ · scale) v, causal; q and k rotated by position; keys and values kept as fp16.

    With `gated`, the query projection gives each head its query and then as many gate values, and the
    result is multiplied by sigmoid(gate) before the output projection.
    """

    shape: AttentionShape
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: Floats | None
    key_norm: Floats | None
    rope: RopeTable
    scale: np.float32
    epsilon: np.float32
    gated: bool
    kernels: Kernels

    def __call__(self, x: Features, spans: Sequence[Span], layer: int) -> Floats:
        """Outputs [tokens, width]; appends the rows' keys and values to the spans' memories."""
        shape = self.shape
        query = self.query(x).reshape(-1, shape.heads, shape.key_dim * (2 if self.gated else 1))
        key = self.key(x).reshape(-1, shape.kv_heads, shape.key_dim)
        value = self.value(x).reshape(-1, shape.kv_heads, shape.value_dim)
        gate = query[..., shape.key_dim :]
        query = query[..., : shape.key_dim]
        if self.query_norm is not None:
            query = rms_norm(query, self.query_norm, self.epsilon)
        if self.key_norm is not None:
            key = rms_norm(key, self.key_norm, self.epsilon)
        mixed = np.empty((query.shape[0], shape.heads, shape.value_dim), np.float32)
        for span in spans:
            memory = span.memories[layer]
            assert isinstance(memory, AttentionMemory)
            end = span.position + span.stop - span.start
            memory.keys[span.position : end] = self.rope.rotate(key[span.rows], span.position)
            memory.values[span.position : end] = value[span.rows]
            mixed[span.rows] = self.kernels.attention(
                self.rope.rotate(query[span.rows], span.position),
                memory.keys[:end],
                memory.values[:end],
                self.scale,
            )
        if self.gated:
            mixed = self.kernels.sigmoid_product(gate, mixed)
        return self.output(Features(mixed.reshape(mixed.shape[0], -1), self.kernels))

    def new_memory(self, context: int) -> AttentionMemory:
        """Room for `context` positions, untouched until used."""
        shape = self.shape
        return AttentionMemory(
            np.empty((context, shape.kv_heads, shape.key_dim), np.float16),
            np.empty((context, shape.kv_heads, shape.value_dim), np.float16),
        )

    def memory_bytes(self, context: int) -> int:
        """Two bytes a key or value element."""
        return context * self.shape.kv_heads * (self.shape.key_dim + self.shape.value_dim) * 2

    @property
    def checkpoint_bytes(self) -> int:
        """Nothing is copied: keys and values are only appended."""
        return 0
