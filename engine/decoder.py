"""A decoder evaluates tokens of one or more sequences; it holds the graph and no request.

Prefill blocks, batched decoding and single steps are the same call, and by the arithmetic contract all of
them give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.errors import InvalidInputError
from engine.graphs.graph import Graph, Span
from engine.kernels.canon import Floats
from engine.memory import Room
from engine.state import State

Rows = Literal["none", "last", "all"]


@dataclass(frozen=True)
class Step:
    """The next tokens of one sequence, and of which of them the logits are wanted."""

    state: State
    tokens: Sequence[int]
    logits: Rows = "last"


def _never() -> None:
    """The check of a caller that never stops."""


class Decoder:
    """`identity` names model, graph and arithmetic; `context` is the longest sequence in tokens."""

    def __init__(self, graph: Graph, identity: str, context: int) -> None:
        self._graph = graph
        self.identity = identity
        self.context = context
        self.vocabulary_size = graph.vocabulary_size

    @property
    def state_bytes(self) -> int:
        """Bytes of one state with a full context."""
        return sum(layer.mixer.memory_bytes(self.context) for layer in self._graph.layers)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes that every checkpoint copies, however short the sequence (the recurrent memories)."""
        return sum(layer.mixer.checkpoint_bytes for layer in self._graph.layers)

    def new_state(self) -> State:
        """An empty sequence."""
        room = Room(self.checkpoint_bytes)
        memories = [layer.mixer.new_memory(self.context, room) for layer in self._graph.layers]
        return State(memories, self.context)

    def evaluate(self, steps: Sequence[Step], check: Callable[[], None] = _never) -> list[Floats]:
        """Append each step's tokens to its state; logits float32 [rows, vocabulary] of each step.

        `check` is called before every layer and may raise. On any exception the states of this call are
        left broken: their tokens are unchanged, their memories must be restored or cleared.
        Raises InvalidInputError for an unknown token, an empty batch or step or a full context, before any
        change.
        """
        self._validate(steps)
        spans: list[Span] = []
        rows: list[int] = []
        tokens: list[int] = []
        for step in steps:
            start, stop = len(tokens), len(tokens) + len(step.tokens)
            spans.append(Span(start, stop, len(step.state.tokens), step.state.memories))
            tokens.extend(step.tokens)
            rows.extend({"none": (), "last": (stop - 1,), "all": range(start, stop)}[step.logits])
        for step in steps:
            step.state.broken = True
        with np.errstate(all="ignore"):
            logits = self._graph.evaluate(tokens, spans, rows, check)
        for step in steps:
            step.state.tokens.extend(step.tokens)
            step.state.broken = False
        counts = [{"none": 0, "last": 1, "all": len(step.tokens)}[step.logits] for step in steps]
        return np.split(logits, np.cumsum(counts)[:-1])

    def _validate(self, steps: Sequence[Step]) -> None:
        if not steps:
            raise InvalidInputError("a batch needs at least one step")
        if len({id(step.state) for step in steps}) != len(steps):
            raise InvalidInputError("a state can take part in a batch only once")
        for step in steps:
            if step.state.broken:
                raise InvalidInputError("the state is broken by a failed evaluation; restore or clear it")
            if not step.tokens:
                raise InvalidInputError("a step needs at least one token")
            total = len(step.state.tokens) + len(step.tokens)
            if total > self.context:
                raise InvalidInputError(f"{total} tokens exceed the context of {self.context}")
            for token in step.tokens:
                if not 0 <= token < self.vocabulary_size:
                    raise InvalidInputError(
                        f"token id {token} is outside the vocabulary of {self.vocabulary_size}"
                    )
