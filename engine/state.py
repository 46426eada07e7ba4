"""One sequence: the tokens it stands for, what every layer remembers of them, and checkpoints of both.

A state holds no weights. It can be evaluated further, set back to a checkpoint, or cleared; after a failed
evaluation it is broken until one of the latter two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.memory import Arrays, LayerMemory


@dataclass(frozen=True)
class Checkpoint:
    """A state's tokens, copies of its recurrent memories, and of its other memories from `start` on.

    It restores the state only while nothing was written at positions below `start`.
    """

    tokens: tuple[int, ...]
    start: int
    copies: tuple[Arrays, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that the copies take."""
        return sum(array.nbytes for arrays in self.copies for array in arrays)


class State:
    """A sequence of up to `context` tokens; `memories` has one entry a layer."""

    def __init__(self, memories: Sequence[LayerMemory], context: int) -> None:
        self.memories = tuple(memories)
        self.context = context
        self.tokens: list[int] = []
        self.broken = False
        self.clear()

    @property
    def recurrent(self) -> bool:
        """Whether a shorter prefix can only be reached through a checkpoint."""
        return any(memory.recurrent for memory in self.memories)

    def checkpoint(self, start: int) -> Checkpoint:
        """A checkpoint that stays good while positions from `start` on are rewritten."""
        copies = tuple(
            tuple(view.copy() for view in memory.views(start, len(self.tokens))) for memory in self.memories
        )
        return Checkpoint(tuple(self.tokens), start, copies)

    def checkpoint_bytes(self, start: int) -> int:
        """Bytes that `checkpoint(start)` would copy."""
        return sum(view.nbytes for memory in self.memories for view in memory.views(start, len(self.tokens)))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Return to a checkpoint of this state."""
        length = len(checkpoint.tokens)
        for memory, copies in zip(self.memories, checkpoint.copies, strict=True):
            for view, copy in zip(memory.views(checkpoint.start, length), copies, strict=True):
                view[...] = copy
        self.tokens = list(checkpoint.tokens)
        self.broken = False

    def truncate(self, length: int) -> None:
        """Forget all but the first `length` tokens; only the empty sequence if memories are recurrent."""
        if length and self.recurrent:
            raise ValueError("a recurrent state cannot be truncated")
        for memory in self.memories:
            if memory.recurrent:
                for view in memory.views(0, 0):
                    view[...] = 0
        del self.tokens[length:]
        self.broken = False

    def clear(self) -> None:
        """Return to the empty sequence."""
        self.truncate(0)
