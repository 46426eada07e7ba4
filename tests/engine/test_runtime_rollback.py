from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np
import pytest

from engine.decoder import Decoder
from engine.errors import (
    CancelledError,
    DeadlineError,
    EngineFaultError,
    PoisonedError,
)
from engine.gguf import parse_header
from engine.kernels.canon import Floats
from engine.layout import prove_layout
from engine.memory import DeltaMemory
from engine.runtime import Cancellation, GenerationOptions
from engine.sampling import GreedySampler, ReferenceSampler
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
    runtime.generate(PROMPT, OPTIONS, sampler=sampler)
    before, saved = runtime.tokens, sampler.clone()
    seen: list[int] = []

    def consume(token: int) -> None:
        seen.append(token)
        if len(seen) == at:
            raise failure

    with pytest.raises(type(failure)) as caught:
        runtime.generate(OTHER, OPTIONS, sampler=sampler, on_token=consume)
    assert caught.value is failure
    assert runtime.tokens == before
    again = runtime.generate(OTHER, OPTIONS, sampler=sampler)
    assert again.tokens == fresh(decoder).generate(OTHER, OPTIONS, sampler=saved).tokens
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
                runtime.generate(prompt, OPTIONS, sampler=sampler)
        else:
            assert answer(runtime, prompt)[1] == answer(clean, prompt)[1]
    # The failed request drew nothing.
    expected = clean.generate(PROMPT, OPTIONS, sampler=ReferenceSampler(7)).tokens
    assert runtime.generate(PROMPT, OPTIONS, sampler=sampler).tokens == expected


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
        runtime.generate([1, 2], GenerationOptions(8, ()), sampler=sampler)
    flat = np.zeros(4096, np.float32)
    assert sampler.sample(flat) == ReferenceSampler(5, top_k=0, top_p=1.0).sample(flat)


def test_a_committed_stop_keeps_its_draw() -> None:
    """The draw that chose a stop token counts."""
    sampler, twin = (ReferenceSampler(5, top_k=1) for _ in range(2))
    stop = expected_tokens([7], 1)[0]
    scripted(Script()).generate([7], GenerationOptions(3, (stop,)), sampler=sampler)
    twin.sample(np.zeros(2, np.float32))
    flat = np.zeros(4096, np.float32)
    sampler.top_k = twin.top_k = 0
    assert sampler.sample(flat) == twin.sample(flat)


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
        runtime.generate([4, 5, 6], OPTIONS, sampler=sampler)
    script.watch = lambda: None
    assert runtime.poisoned
    for attempt in (
        lambda: runtime.validate([1], OPTIONS),
        lambda: runtime.generate([1], OPTIONS, sampler=GreedySampler()),
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
