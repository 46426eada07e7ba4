from __future__ import annotations

import gc
import time
from typing import Any, Self

import numpy as np
import pytest

from engine.decoder import Decoder
from engine.errors import (
    CancelledError,
    DeadlineError,
    EngineFaultError,
    PoisonedError,
    SamplerLostError,
)
from engine.gguf import parse_header
from engine.kernels.canon import Floats
from engine.layout import prove_layout
from engine.memory import DeltaMemory
from engine.runtime import Cancellation, GenerationOptions
from engine.sampling import GreedySampler, ReferenceSampler
from engine.state import Checkpoint, State
from tests.engine.sampling.draws import DRAWS, SEED
from tests.models import build_decoder
from tests.runtimes import (
    OPTIONS,
    OTHER,
    PROMPT,
    Countdown,
    Script,
    answer,
    decoder_of,
    expected_tokens,
    file_of,
    fresh,
    scripted,
)


@pytest.fixture(params=["qwen3", "qwen35"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """A decoder whose states can be cut off, and one whose states cannot."""
    return decoder_of(str(request.param))


@pytest.mark.parametrize("second", [OTHER, [*PROMPT, 5, 6, 7]], ids=["divergent", "longer"])
def test_cancellation_at_every_look(decoder: Decoder, second: list[int]) -> None:
    """Wherever a request is stopped, state and next answer are those of a runtime that never saw it."""
    _, expected = answer(fresh(decoder), PROMPT[:6])
    base = fresh(decoder)
    answer(base)
    before = base.tokens
    calm, reference = answer(base, PROMPT[:6])
    assert reference == expected
    looks = 0
    while True:
        runtime = fresh(decoder)
        answer(runtime)
        seen: list[int] = []
        try:
            answer(runtime, second, cancellation=Countdown(looks), on_token=seen.append)
        except CancelledError:
            pass
        else:
            break
        assert len(seen) <= 4
        assert runtime.tokens == before
        done, logits = answer(runtime, PROMPT[:6])
        assert (done.tokens, done.reused_tokens) == (calm.tokens, calm.reused_tokens)
        assert logits == expected
        looks += 1
    assert looks > 15  # layers of several blocks and of four steps


def test_cancellation_at_every_look_of_a_script() -> None:
    """The same with a decoder whose next token betrays any byte that was not put back."""
    for recurrent in (True, False):
        for prompt in ([1, 2, 3, 4, 5, 6, 7], [1, 2, 8, 9, 10, 11]):
            for looks in range(60):
                runtime = scripted(Script(recurrent=recurrent))
                answer(runtime, [1, 2, 3, 4, 5])
                before = runtime.tokens
                try:
                    answer(runtime, prompt, cancellation=Countdown(looks))
                except CancelledError:
                    assert runtime.tokens == before
                done, _ = answer(runtime, [*before, 12])
                assert done.tokens == expected_tokens([*before, 12], 4)


def test_a_flag_raised_by_another_party_cancels() -> None:
    """The flag is looked at after the token that was being delivered."""
    flag = Cancellation()
    assert not flag.cancelled
    runtime = scripted(Script())
    with pytest.raises(CancelledError):
        answer(runtime, [1, 2], cancellation=flag, on_token=lambda _: flag.cancel())
    assert flag.cancelled
    assert runtime.tokens == ()


def test_a_deadline_in_the_past_stops_before_the_first_layer() -> None:
    """Nothing was evaluated."""
    script = Script()
    runtime = scripted(script)
    with pytest.raises(DeadlineError, match="deadline passed"):
        answer(runtime, [1, 2], deadline=time.monotonic())
    assert script.blocks == []
    assert not runtime.poisoned


def test_a_deadline_that_passes_on_the_way(decoder: Decoder) -> None:
    """A slow consumer uses up the time; the next request is not touched by it."""
    runtime = fresh(decoder)
    answer(runtime)
    before = runtime.tokens
    deadline = time.monotonic() + 0.2

    def slow(_: int) -> None:
        while time.monotonic() < deadline:
            time.sleep(0.01)

    with pytest.raises(DeadlineError):
        answer(runtime, OTHER, deadline=deadline, on_token=slow)
    assert runtime.tokens == before
    assert answer(runtime, OTHER)[1] == answer(fresh(decoder), OTHER)[1]


def test_checkpoints_count_for_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy to go back to is made within the time that is allowed."""
    real, passed, checkpoint = time.monotonic, 0.0, State.checkpoint

    def slowly(state: State, start: int) -> Checkpoint:
        nonlocal passed
        passed += 100.0
        return checkpoint(state, start)

    monkeypatch.setattr(time, "monotonic", lambda: real() + passed)
    monkeypatch.setattr(State, "checkpoint", slowly)
    script = Script()
    with pytest.raises(DeadlineError):
        answer(scripted(script), [1, 2], deadline=time.monotonic() + 50)
    assert script.blocks == []
    assert answer(scripted(Script()), [1, 2], deadline=time.monotonic() + 150)[0].finish == "length"


def test_a_deadline_far_away_changes_nothing() -> None:
    """It is a time of the monotonic clock."""
    done, _ = answer(scripted(Script()), [1, 2], deadline=time.monotonic() + 3600)
    assert done.tokens == expected_tokens([1, 2], 4)


@pytest.mark.parametrize("failure", [ValueError("broken pipe"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("at", [1, 3])
def test_whatever_a_consumer_raises_passes_through(decoder: Decoder, failure: BaseException, at: int) -> None:
    """State and sampler are as before, and the exception is the consumer's own."""
    runtime = fresh(decoder)
    sampler = ReferenceSampler(1)
    runtime.generate_sampled(PROMPT, OPTIONS, sampler)
    before, saved = runtime.tokens, sampler.clone()
    seen: list[int] = []

    def consume(token: int) -> None:
        seen.append(token)
        if len(seen) == at:
            raise failure

    with pytest.raises(type(failure)) as caught:
        runtime.generate_sampled(OTHER, OPTIONS, sampler, on_token=consume)
    assert caught.value is failure
    assert runtime.tokens == before
    again = runtime.generate_sampled(OTHER, OPTIONS, sampler)
    assert again.tokens == fresh(decoder).generate_sampled(OTHER, OPTIONS, saved).tokens
    assert list(again.tokens[:at]) == seen


def test_a_failing_progress_callback_rolls_back() -> None:
    """During prefill as during decode."""
    runtime = scripted(Script())
    answer(runtime, [1, 2, 3])
    before = runtime.tokens

    def fail(done: int, total: int) -> None:
        if done > 4:
            raise OSError(f"{done} of {total}")

    with pytest.raises(OSError, match="5 of 7"):
        answer(runtime, [9, 8, 7, 6, 5, 4, 3], options=GenerationOptions(2, (), 5), on_prefill=fail)
    assert runtime.tokens == before


@pytest.mark.parametrize("bad", [np.nan, np.inf], ids=["nan", "inf"])
@pytest.mark.parametrize("name", ["output_norm.weight", "blk.0.attn_norm.weight", "blk.1.ffn_norm.weight"])
@pytest.mark.parametrize("architecture", ["qwen3", "qwen35"])
def test_weights_that_are_not_numbers_are_a_fault(architecture: str, name: str, bad: float) -> None:
    """Not a token: every request fails and leaves an empty state."""
    if architecture == "qwen35":
        name = name.replace("ffn_norm", "post_attention_norm")
    runtime = fresh(build_decoder(patched(file_of(architecture), name, 0, bad), context=40))
    for _ in range(2):
        with pytest.raises(EngineFaultError, match="not finite"):
            answer(runtime)
        assert runtime.tokens == ()
        assert not runtime.poisoned


def test_a_fault_of_one_request_does_not_reach_the_next() -> None:
    """The embedding of one token is not a number: whoever uses it fails, all others are unchanged."""
    data = patched(file_of("qwen3"), "token_embd.weight", 200 * 256 + 9, np.nan)
    runtime, clean = fresh(build_decoder(data, context=40)), fresh(decoder_of("qwen3"))
    sampler = ReferenceSampler(7)
    for prompt in (PROMPT, OTHER, PROMPT[:5]):
        if 200 in prompt:
            with pytest.raises(EngineFaultError):
                runtime.generate_sampled(prompt, OPTIONS, sampler)
        else:
            assert answer(runtime, prompt)[1] == answer(clean, prompt)[1]
    # The failed request drew nothing.
    expected = clean.generate_sampled(PROMPT, OPTIONS, ReferenceSampler(7)).tokens
    assert runtime.generate_sampled(PROMPT, OPTIONS, sampler).tokens == expected


def patched(data: bytes, name: str, index: int, value: float) -> bytes:
    """A file with one float32 of one tensor replaced."""
    tensor = prove_layout(parse_header(data, len(data)), len(data), memoryview(data))[name]
    place = tensor.start + 4 * index
    return data[:place] + np.float32(value).tobytes() + data[place + 4 :]


def test_a_sampler_that_fails_is_restored_too() -> None:
    """Draws that a failed request made are taken back."""

    class Failing(ReferenceSampler):
        """Fails at its third draw."""

        draws = 0

        def sample(self, logits: Floats) -> int:
            """Draw, then perhaps fail."""
            token = super().sample(logits)
            self.draws += 1
            if self.draws == 3:
                raise RuntimeError("third")
            return token

    sampler = Failing(5, top_k=0, top_p=1.0)
    runtime = scripted(Script())
    with pytest.raises(RuntimeError, match="third"):
        runtime.generate_sampled([1, 2], GenerationOptions(8, ()), sampler)
    flat = np.zeros(4096, np.float32)
    assert sampler.sample(flat) == ReferenceSampler(5, top_k=0, top_p=1.0).sample(flat)


def test_a_committed_stop_keeps_its_draw() -> None:
    """The draw that chose a stop token counts, though the token is not emitted."""
    sampler = ReferenceSampler(
        SEED, 1e-6, 0, 1.0
    )  # the best alone where there is one, all where there is none
    stop = expected_tokens([7], 1)[0]
    seen: list[int] = []
    runtime = scripted(Script())
    done = runtime.generate_sampled([7], GenerationOptions(3, (stop,)), sampler, on_token=seen.append)
    assert (done.tokens, done.finish, done.stop_token, seen) == ((), "stop", stop, [])
    assert runtime.tokens == (7,)
    assert sampler.sample(np.zeros(4096, np.float32)) == int(DRAWS[1] * 4096) == 711


class Unrestorable(ReferenceSampler):
    """Cannot take its draws back."""

    def restore(self, saved: Self) -> None:
        """Refuse, but for a clone."""
        if saved is not self.original:
            raise OSError("no way back")
        super().restore(saved)

    def clone(self) -> Self:
        """A copy, which may take over from here."""
        copy = type(self)(self.seed)
        copy.original = self
        copy.restore(self)
        return copy

    original: ReferenceSampler | None = None


def test_a_sampler_that_cannot_be_restored_is_named() -> None:
    """The state is as before all the same, and the runtime goes on with another sampler."""
    runtime = scripted(Script())
    answer(runtime, [1, 2, 3])
    before = runtime.tokens

    def fail(_: int) -> None:
        raise ValueError("the consumer")

    with pytest.raises(SamplerLostError, match="sampler could not be restored") as caught:
        runtime.generate_sampled([1, 2, 9, 8], OPTIONS, Unrestorable(1), on_token=fail)
    assert isinstance(caught.value.__cause__, OSError)
    assert isinstance(caught.value.__cause__.__context__, ValueError)
    assert runtime.tokens == before
    assert not runtime.poisoned
    assert answer(runtime, [*before, 5])[0].tokens == expected_tokens([*before, 5], 4)


def test_a_lost_state_is_worse_than_a_lost_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither can be restored the runtime is poisoned, and that is what is raised."""
    runtime = scripted(Script())

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(State, "restore", fail)
    with pytest.raises(PoisonedError):
        runtime.generate_sampled([1, 2], OPTIONS, Unrestorable(1), on_token=fail)
    assert runtime.poisoned


def test_a_state_that_cannot_be_restored_is_poisoned() -> None:
    """The runtime says so, refuses further work, restores the sampler nevertheless, and can be reset."""
    script = Script()
    runtime = scripted(script)
    answer(runtime, [1, 2, 3])
    locked: list[np.ndarray[Any, Any]] = []

    def lock() -> None:
        for thing in gc.get_objects():
            if isinstance(thing, DeltaMemory):
                thing.state.flags.writeable = False
                locked.append(thing.state)

    sampler = ReferenceSampler(5)
    script.watch = lock
    with pytest.raises(PoisonedError, match="could not be restored"):
        runtime.generate_sampled([4, 5, 6], OPTIONS, sampler)
    script.watch = lambda: None
    assert runtime.poisoned
    for attempt in (
        lambda: runtime.validate([1], OPTIONS),
        lambda: runtime.generate_sampled([1], OPTIONS, GreedySampler()),
    ):
        with pytest.raises(PoisonedError, match="reset the runtime"):
            attempt()
    for state in locked:
        state.flags.writeable = True
    runtime.reset()
    assert not runtime.poisoned
    assert runtime.tokens == ()
    assert answer(runtime, [1, 2])[0].tokens == expected_tokens([1, 2], 4)
    flat = np.zeros(4096, np.float32)
    assert sampler.sample(flat) == ReferenceSampler(5).sample(flat)


def test_a_reset_forgets_everything(decoder: Decoder) -> None:
    """Tokens and the retained checkpoint."""
    runtime = fresh(decoder)
    answer(runtime)
    runtime.reset()
    assert runtime.tokens == ()
    done, logits = answer(runtime, OTHER)
    assert done.reused_tokens == 0
    assert logits == answer(fresh(decoder), OTHER)[1]
