"""The frame that all architectures share: embedding, layers with residual additions, output.

A batch is ragged: the tokens of several sequences lie one after another, and each `Span` says which rows
belong to which sequence and at what position they start. Everything but the memories of the layers works
on all rows at once, and every row's result is independent of the other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.kernels import Kernels
from engine.kernels.canon import Floats, Rotation
from engine.kernels.matrices import Matrix
from engine.linear import Linear, Projections
from engine.memory import LayerMemory, Room


@dataclass(frozen=True)
class Span:
    """Rows `start` to `stop` of a batch: one sequence's next tokens, the first at `position`."""

    start: int
    stop: int
    position: int
    memories: Sequence[LayerMemory]

    @property
    def rows(self) -> slice:
        """The rows as a slice."""
        return slice(self.start, self.stop)


class Mixer(Protocol):
    """A sublayer that lets the positions of a sequence see earlier ones."""

    def __call__(self, x: Floats, spans: Sequence[Span], layer: int) -> Floats:
        """Outputs [tokens, width]; reads and extends memory `layer` of every span."""

    def new_memory(self, context: int, room: Room) -> LayerMemory:
        """A memory for sequences of up to `context` tokens, not cleared; a recurrent one lies in `room`."""

    def memory_bytes(self, context: int) -> int:
        """Bytes of such a memory."""

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes that a snapshot of such a memory copies."""


@dataclass(frozen=True)
class FeedForward:
    """down(silu(gate x) ⊙ up x)."""

    gate_up: Projections
    down: Linear
    kernels: Kernels

    def __call__(self, x: Floats) -> Floats:
        """Outputs [tokens, width]."""
        return self.down(self.kernels.silu_product(*self.gate_up(x)))


@dataclass(frozen=True)
class Layer:
    """x += mixer(norm(x)); x += feed_forward(norm(x))."""

    mixer_norm: Floats
    mixer: Mixer
    feed_forward_norm: Floats
    feed_forward: FeedForward


@dataclass(frozen=True)
class Embedding:
    """Rows of a matrix; folded files store them rotated."""

    matrix: Matrix
    rotation: Rotation | None
    kernels: Kernels

    def __call__(self, tokens: list[int]) -> Floats:
        """Embeddings float32 [tokens, width]."""
        rows = self.matrix.select(tokens)
        return rows if self.rotation is None else self.kernels.unfold(rows, self.rotation)


@dataclass(frozen=True)
class Graph:
    """A whole model: what `evaluate` computes is the definition of the architecture."""

    embedding: Embedding
    layers: tuple[Layer, ...]
    output_norm: Floats
    output: Linear
    epsilon: np.float32
    kernels: Kernels
    vocabulary_size: int

    def evaluate(
        self, tokens: list[int], spans: Sequence[Span], rows: list[int], check: Callable[[], None]
    ) -> Floats:
        """Logits float32 [len(rows), vocabulary] of the chosen rows of a batch.

        `check` is called before every layer and may raise to stop; the memories are then unusable until
        they are restored.
        """
        norm, epsilon = self.kernels.rms_norm, self.epsilon
        x = self.embedding(tokens)
        # What the sublayer before adds to x; the norm of the next one does the addition.
        change: Floats | None = None
        for index, layer in enumerate(self.layers):
            check()
            normed = norm(x, change, layer.mixer_norm, epsilon)
            change = layer.mixer(normed, spans, index)
            normed = norm(x, change, layer.feed_forward_norm, epsilon)
            change = layer.feed_forward(normed)
        if not rows:
            return np.empty((0, self.vocabulary_size), np.float32)
        check()
        assert change is not None
        normed = norm(x[rows], change[rows], self.output_norm, epsilon)
        return self.output(normed)
