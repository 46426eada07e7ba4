"""Full attention with grouped key and value heads, optional head norms and an optional output gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.graphs.graph import Span
from engine.graphs.rope import RopeTable
from engine.kernels import Kernels
from engine.kernels.canon import Floats, HeadNorms
from engine.linear import Linear, Projections
from engine.memory import AttentionMemory, Room, line_aligned


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
    inputs: Projections  # query, key, value
    output: Linear
    norms: HeadNorms
    rope: RopeTable
    scale: np.float32
    gated: bool
    kernels: Kernels

    def __call__(self, x: Floats, spans: Sequence[Span], layer: int) -> Floats:
        """Outputs [tokens, width]; appends the rows' keys and values to the spans' memories."""
        shape, kernels = self.shape, self.kernels
        projected = self.inputs(x)
        query = projected[0].reshape(-1, shape.heads, shape.key_dim * (2 if self.gated else 1))
        key = projected[1].reshape(-1, shape.kv_heads, shape.key_dim)
        value = projected[2].reshape(-1, shape.kv_heads, shape.value_dim)
        gate = None
        if self.gated:
            query, gate = query[..., : shape.key_dim], query[..., shape.key_dim :]
        parts = []
        for span in spans:
            memory = span.memories[layer]
            assert isinstance(memory, AttentionMemory)
            rows = span.rows
            parts.append(
                kernels.attend(
                    query[rows],
                    key[rows],
                    value[rows],
                    self.norms,
                    self.rope.rows(span.position, span.stop - span.start),
                    memory.keys,
                    memory.values,
                    span.position,
                    self.scale,
                )
            )
        mixed = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if gate is not None:
            mixed = kernels.sigmoid_product(gate, mixed)
        return self.output(mixed.reshape(mixed.shape[0], -1))

    def new_memory(self, context: int, room: Room) -> AttentionMemory:
        """Memory for `context` positions, untouched until used."""
        del room
        shape = self.shape
        sizes = [(context, shape.kv_heads, dim) for dim in (shape.key_dim, shape.value_dim)]
        keys, values = (line_aligned(2 * math.prod(size)).view(np.float16).reshape(size) for size in sizes)
        return AttentionMemory(keys, values)

    def memory_bytes(self, context: int) -> int:
        """Two bytes a key or value element."""
        return context * self.shape.kv_heads * (self.shape.key_dim + self.shape.value_dim) * 2

    @property
    def checkpoint_bytes(self) -> int:
        """Nothing is copied: keys and values are only appended."""
        return 0
