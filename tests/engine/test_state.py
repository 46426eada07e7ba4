from __future__ import annotations

import numpy as np
import pytest

from engine.memory import AttentionMemory, DeltaMemory
from engine.state import State


def attention() -> AttentionMemory:
    """Keys of two heads of two, values of two heads of three, six positions; garbage where unused."""
    return AttentionMemory(np.full((6, 2, 2), 77, np.float16), np.full((6, 2, 3), 77, np.float16))


def delta() -> DeltaMemory:
    """One head of 2 by 2 and a convolution that remembers three inputs of four channels."""
    return DeltaMemory(np.zeros((1, 2, 2), np.float32), np.zeros((3, 4), np.float32))


def write(state: State, tokens: list[int]) -> None:
    """Append tokens as an evaluation would, leaving traces of each in every memory."""
    for token in tokens:
        for memory in state.memories:
            if isinstance(memory, AttentionMemory):
                memory.keys[len(state.tokens)] = token
                memory.values[len(state.tokens)] = -token
            if isinstance(memory, DeltaMemory):
                memory.state += token
                memory.recent[:-1] = memory.recent[1:]
                memory.recent[-1] = token
        state.tokens.append(token)


def contents(state: State) -> list[bytes]:
    """Everything a state remembers of its tokens."""
    views = [view for memory in state.memories for view in memory.views(0, len(state.tokens))]
    return [view.tobytes() for view in views]


def test_a_new_state_is_empty() -> None:
    """No tokens, not broken, recurrent only with a recurrent memory."""
    state = State([attention(), delta()], 6)
    assert state.tokens == []
    assert not state.broken
    assert state.recurrent
    assert not State([attention()], 6).recurrent


def test_a_checkpoint_restores_everything_from_its_start_on() -> None:
    """Positions below the start are trusted, later ones and recurrent memories are copied."""
    state = State([attention(), delta()], 6)
    write(state, [1, 2, 3, 4])
    before = contents(state)
    checkpoint = state.checkpoint(2)
    state.truncate(0)
    state.tokens = [1, 2]
    write(state, [9, 8, 7, 6])
    state.broken = True
    state.restore(checkpoint)
    assert state.tokens == [1, 2, 3, 4]
    assert contents(state) == before
    assert not state.broken


def test_a_checkpoint_is_a_copy_and_may_be_restored_twice() -> None:
    """What happens afterwards does not reach into it."""
    state = State([attention(), delta()], 6)
    write(state, [5, 6])
    before = contents(state)
    checkpoint = state.checkpoint(0)
    for _ in range(2):
        write(state, [1])
        state.restore(checkpoint)
        assert contents(state) == before
    assert checkpoint.tokens == (5, 6)


@pytest.mark.parametrize("start", [0, 1, 3])
def test_checkpoint_bytes_are_known_beforehand(start: int) -> None:
    """Two bytes a key or value element from the start on, four a recurrent one, wherever it starts."""
    state = State([attention(), delta()], 6)
    write(state, [1, 2, 3])
    expected = (3 - start) * (4 + 6) * 2 + (4 + 12) * 4
    assert state.checkpoint_bytes(start) == expected
    assert state.checkpoint(start).nbytes == expected


def test_truncating_keeps_a_prefix_of_appended_memories() -> None:
    """Keys and values need no copy to go back."""
    state = State([attention()], 6)
    write(state, [1, 2])
    before = contents(state)
    write(state, [3, 4])
    state.broken = True
    state.truncate(2)
    assert state.tokens == [1, 2]
    assert contents(state) == before
    assert not state.broken


def test_a_recurrent_state_cannot_be_truncated_but_cleared() -> None:
    """Its memory of earlier tokens is gone; only the empty sequence is known."""
    state = State([attention(), delta()], 6)
    empty = contents(state)
    write(state, [1, 2, 3])
    with pytest.raises(ValueError, match="recurrent"):
        state.truncate(2)
    state.broken = True
    state.clear()
    assert state.tokens == []
    assert contents(state) == empty
    assert not state.broken
