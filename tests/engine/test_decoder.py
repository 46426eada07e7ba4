from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.decoder import Decoder, Step
from engine.errors import CancelledError, InvalidInputError
from engine.graphs.attention import Attention, AttentionShape
from engine.graphs.delta_net import DeltaNet, DeltaShape
from engine.state import State
from tests.models import build_decoder, golden_decoder, golden_ids, memory_bytes, qwen35_file

IDS = golden_ids()
LAYERS = {"tiny-qwen3-pq2_0": 2, "tiny-qwen35-pq2_0": 4}


@pytest.fixture(params=LAYERS)
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """One decoder of each architecture."""
    return golden_decoder(str(request.param))


def test_state_and_checkpoint_bytes() -> None:
    """fp16 keys and values a position; float32 recurrent memories whatever the length."""
    qwen3 = golden_decoder("tiny-qwen3-pq2_0")
    assert qwen3.context == 512
    assert qwen3.state_bytes == 2 * 512 * 2 * (64 + 64) * 2
    assert qwen3.checkpoint_bytes == 0
    qwen35 = golden_decoder("tiny-qwen35-pq2_0")
    recurrent = 3 * (4 * 64 * 64 + 3 * (2 * 2 * 64 + 4 * 64)) * 4
    assert qwen35.checkpoint_bytes == recurrent
    assert qwen35.state_bytes == recurrent + 512 * 2 * (64 + 64) * 2


def test_state_of_the_published_model() -> None:
    """27B at 8,192 tokens: 512 MiB of keys and values, 156,893,184 recurrent bytes; 1 GiB holds both."""
    nothing: Any = None  # the sizes do not depend on weights
    attention = Attention(AttentionShape(24, 4, 256, 256), *[nothing] * 7)
    delta = DeltaNet(DeltaShape(16, 48, 128, 4), *[nothing] * 4)
    assert 16 * attention.memory_bytes(8192) == 8192 * 65_536 == 512 << 20
    assert 48 * delta.memory_bytes(8192) == 48 * delta.checkpoint_bytes == 156_893_184


def test_a_state_takes_what_was_announced(decoder: Decoder) -> None:
    """The arrays of a full state add up to the bytes that the budget is asked for."""
    state = decoder.new_state()
    arrays = [view for memory in state.memories for view in memory.views(0, decoder.context)]
    assert sum(array.nbytes for array in arrays) == decoder.state_bytes


def test_rows_of_logits(decoder: Decoder) -> None:
    """All, the last or none of a step's positions, in the order of the steps."""
    states = [decoder.new_state() for _ in range(4)]
    steps = [
        Step(states[0], IDS[:3], "all"),
        Step(states[1], IDS[:3], "none"),
        Step(states[2], IDS[:3]),
        Step(states[3], IDS[3:5], "all"),
    ]
    found = decoder.evaluate(steps)
    assert [rows.shape for rows in found] == [(count, 1024) for count in (3, 0, 1, 2)]
    assert all(rows.dtype == np.float32 for rows in found)
    assert found[2].tobytes() == found[0][2:].tobytes()
    assert [len(state.tokens) for state in states] == [3, 3, 3, 2]
    assert memory_bytes(states[0]) == memory_bytes(states[1])


def test_only_states_without_logits(decoder: Decoder) -> None:
    """A batch may want no logits at all."""
    state = decoder.new_state()
    assert decoder.evaluate([Step(state, IDS[:2], "none")])[0].shape == (0, 1024)
    assert state.tokens == IDS[:2]


@pytest.mark.parametrize("bad", [-1, 1024])
def test_unknown_tokens_are_refused_before_any_change(decoder: Decoder, bad: int) -> None:
    """The state can go on as if nothing had been asked."""
    state = decoder.new_state()
    decoder.evaluate([Step(state, IDS[:4])])
    before = memory_bytes(state)
    with pytest.raises(InvalidInputError, match=f"token id {bad} is outside the vocabulary of 1024"):
        decoder.evaluate([Step(state, [5, bad])])
    assert state.tokens == IDS[:4]
    assert memory_bytes(state) == before
    assert not state.broken


def test_impossible_steps_are_refused(decoder: Decoder) -> None:
    """Nothing to do, too much to do, or the same state twice."""
    state = decoder.new_state()
    with pytest.raises(InvalidInputError, match="at least one token"):
        decoder.evaluate([Step(state, [])])
    with pytest.raises(InvalidInputError, match="513 tokens exceed the context of 512"):
        decoder.evaluate([Step(state, [1] * 513)])
    with pytest.raises(InvalidInputError, match="only once"):
        decoder.evaluate([Step(state, [1]), Step(state, [2])])
    assert not state.broken


def test_the_last_position_of_the_context_can_be_used() -> None:
    """A context is full, not over, when its last position is taken."""
    decoder = build_decoder(qwen35_file().build(), context=6)
    state = decoder.new_state()
    decoder.evaluate([Step(state, [1, 2, 3, 4, 5])])
    decoder.evaluate([Step(state, [6])])
    with pytest.raises(InvalidInputError, match="7 tokens exceed the context of 6"):
        decoder.evaluate([Step(state, [7])])


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_asks_whether_to_go_on(name: str) -> None:
    """Once before every layer and once before the output; raising breaks the states of the call alone."""
    decoder = golden_decoder(name)
    calls = LAYERS[name] + 1
    for stop_at in range(1, calls + 2):
        count = 0

        def check(last: int = stop_at) -> None:
            nonlocal count
            count += 1
            if count == last:
                raise CancelledError("enough")

        first, second, apart = (decoder.new_state() for _ in range(3))
        decoder.evaluate([Step(first, IDS[:4]), Step(apart, IDS[:4])])
        before, saved = memory_bytes(first), first.checkpoint(4)
        steps = [Step(first, IDS[4:9]), Step(second, IDS[:2])]
        if stop_at > calls:
            decoder.evaluate(steps, check)
            assert count == calls
            return
        with pytest.raises(CancelledError):
            decoder.evaluate(steps, check)
        assert first.tokens == IDS[:4]
        assert second.tokens == []
        assert first.broken
        assert second.broken
        assert not apart.broken
        with pytest.raises(InvalidInputError, match="broken"):
            decoder.evaluate([Step(first, IDS[4:9])])
        first.restore(saved)
        assert memory_bytes(first) == before


def test_a_restored_state_goes_on_as_if_nothing_had_happened(decoder: Decoder) -> None:
    """After a failure and a restore, the next logits are those of an undisturbed state."""

    def fail() -> None:
        raise CancelledError("at once")

    disturbed, calm = decoder.new_state(), decoder.new_state()
    for state in (disturbed, calm):
        decoder.evaluate([Step(state, IDS[:10])])
    saved = disturbed.checkpoint(10)
    with pytest.raises(CancelledError):
        decoder.evaluate([Step(disturbed, IDS[20:30])], fail)
    disturbed.restore(saved)
    found = [decoder.evaluate([Step(state, IDS[10:20], "all")])[0] for state in (disturbed, calm)]
    assert found[0].tobytes() == found[1].tobytes()


def test_a_cleared_state_equals_a_new_one(decoder: Decoder) -> None:
    """Clearing forgets a broken evaluation too."""
    used, new = decoder.new_state(), decoder.new_state()
    decoder.evaluate([Step(used, IDS)])
    used.clear()
    found = [decoder.evaluate([Step(state, IDS[:8])])[0] for state in (used, new)]
    assert found[0].tobytes() == found[1].tobytes()


def test_states_of_one_decoder_are_independent(decoder: Decoder) -> None:
    """Memory is not shared between sequences."""
    states: list[State] = [decoder.new_state() for _ in range(2)]
    arrays = [view for state in states for memory in state.memories for view in memory.views(0, 4)]
    half = len(arrays) // 2
    assert not any(np.shares_memory(a, b) for a in arrays[:half] for b in arrays[half:])


def test_a_batch_needs_steps(decoder: Decoder) -> None:
    """There is nothing to evaluate in an empty one."""
    with pytest.raises(InvalidInputError, match="at least one step"):
        decoder.evaluate([])
