from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

from engine.decoder import Decoder, Step
from engine.errors import (
    BudgetError,
    CancelledError,
    ContextError,
    DeadlineError,
    EngineFaultError,
    InvalidInputError,
    PoisonedError,
)
from engine.gguf import parse_header
from engine.kernels.canon import Floats
from engine.layout import prove_layout
from engine.memory import AttentionMemory, DeltaMemory, LayerMemory
from engine.runtime import Cancellation, Completion, GenerationOptions, Runtime
from engine.sampling import GreedySampler, ReferenceSampler, Sampler
from engine.state import Checkpoint, State
from tests.gguf_writer import F32, PQ2_0
from tests.models import Recorder, build_decoder, qwen35_file, transformer_file

PLENTY = 1 << 24
PROMPT = [11, 22, 33, 44, 55, 66, 77, 88, 99]
OTHER = [11, 22, 33, 44, 200, 201, 202]
OPTIONS = GenerationOptions(4, (), prefill_block=3, stable_prefix=3)


@cache
def file_of(architecture: str) -> bytes:
    """A small random model of each kind: attention alone, or with recurrent layers."""
    return (qwen35_file(PQ2_0) if architecture == "qwen35" else transformer_file("qwen3", F32)).build()


@cache
def decoder_of(architecture: str) -> Decoder:
    """Its decoder, for sequences of 40 tokens."""
    return build_decoder(file_of(architecture), context=40)


@pytest.fixture(params=["qwen3", "qwen35"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """A decoder whose states can be cut off, and one whose states cannot."""
    return decoder_of(str(request.param))


def fresh(decoder: Decoder, budget: int = PLENTY, **options: Any) -> Runtime:
    """A runtime that has seen nothing."""
    return Runtime(decoder, checkpoint_bytes=budget, **options)


def answer(
    runtime: Runtime, prompt: Sequence[int] = PROMPT, **options: Any
) -> tuple[Completion, list[bytes]]:
    """A completion with the bytes of all logits that were sampled from."""
    sampler = Recorder()
    done = runtime.generate(prompt, options.pop("options", OPTIONS), sampler=sampler, **options)
    return done, sampler.logits


class Countdown(Cancellation):
    """Says "cancelled" from the n-th look on."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    @property
    def cancelled(self) -> bool:
        """One look."""
        self.left -= 1
        return self.left < 0


class Script:
    """Stands in for a decoder: the next token is a checksum of all that its memories hold.

    Keys hold the tokens, the recurrent state a running checksum; if the two disagree the result is wrong.
    """

    vocabulary_size = 16
    identity = "script"
    checkpoint_bytes = 4 + 4

    def __init__(self, context: int = 32, *, recurrent: bool = True) -> None:
        self.context = context
        self.recurrent = recurrent
        self.blocks: list[int] = []
        self.states = 0
        self.watch: Callable[[], None] = lambda: None

    @property
    def state_bytes(self) -> int:
        """Two fp16 numbers a position and the recurrent memory."""
        return self.context * 4 + self.checkpoint_bytes

    def new_state(self) -> State:
        """Memories of both kinds."""
        self.states += 1
        keys, values = (np.zeros((self.context, 1, 1), np.float16) for _ in range(2))
        memory = DeltaMemory(np.zeros((1, 1, 1), np.float32), np.zeros((1, 1), np.float32))
        memories: list[LayerMemory] = [AttentionMemory(keys, values), memory]
        return State(memories if self.recurrent else memories[:1], self.context)

    def evaluate(self, steps: Sequence[Step], check: Callable[[], None]) -> list[Floats]:
        """One step, checked twice a token as if there were two layers."""
        (step,) = steps
        state = step.state
        assert not state.broken
        state.broken = True
        self.blocks.append(len(step.tokens))
        keys, running = state.memories[0].views(0, self.context)[0], None
        if self.recurrent:
            running = state.memories[1].views(0, 0)[0]
        for offset, token in enumerate(step.tokens):
            check()
            self.watch()
            keys[len(state.tokens) + offset] = token
            check()
            if running is not None:
                running[...] = (running * 31 + token + 1) % 9973
        state.tokens.extend(step.tokens)
        state.broken = False
        total = 0
        for token in keys[: len(state.tokens), 0, 0].astype(int):
            total = (total * 31 + int(token) + 1) % 9973
        logits = np.zeros((1, self.vocabulary_size), np.float32)
        logits[0, total % 16 if running is None or total == running.item() else 0] = 1
        return [logits]


def expected_tokens(prompt: Sequence[int], count: int) -> tuple[int, ...]:
    """What `Script` answers."""
    tokens = list(prompt)
    for _ in range(count):
        total = 0
        for token in tokens:
            total = (total * 31 + token + 1) % 9973
        tokens.append(total % 16)
    return tuple(tokens[len(prompt) :])


def scripted(script: Script, budget: int = PLENTY, **options: Any) -> Runtime:
    """A runtime over a script."""
    return Runtime(cast(Decoder, script), checkpoint_bytes=budget, **options)


# --- What a completed request leaves -----------------------------------------------------------------


def test_a_completion_says_what_happened(decoder: Decoder) -> None:
    """Tokens, why they ended, prompt and reused lengths, times; the state stands for what was evaluated."""
    runtime = fresh(decoder)
    done, _ = answer(runtime)
    assert len(done.tokens) == 4
    assert (done.finish, done.stop_token) == ("length", None)
    assert (done.prompt_tokens, done.reused_tokens) == (9, 0)
    assert done.prefill_seconds > 0
    assert done.decode_seconds > 0
    assert runtime.tokens == (*PROMPT, *done.tokens[:-1])  # the last one was not evaluated
    assert runtime.context == 40


def test_greedy_tokens_follow_the_logits() -> None:
    """The script's answer is known beforehand."""
    prompt = [3, 1, 4, 1, 5]
    done, _ = answer(scripted(Script()), prompt, options=GenerationOptions(6, ()))
    assert done.tokens == expected_tokens(prompt, 6)


@pytest.mark.parametrize("block", [1, 2, 4, 256])
def test_prefill_in_blocks(block: int) -> None:
    """All but the last prompt token go in blocks, cut at the stable prefix; progress is reported."""
    script = Script()
    seen: list[tuple[int, int]] = []
    options = GenerationOptions(1, (), prefill_block=block, stable_prefix=5)
    prompt = list(range(10))
    answer(scripted(script), prompt, options=options, on_prefill=lambda *done: seen.append(done))
    expected = {1: [1] * 10, 2: [2, 2, 1, 2, 2, 1], 4: [4, 1, 4, 1], 256: [5, 4, 1]}[block]
    assert script.blocks == expected
    assert [done for done, _ in seen] == np.cumsum(expected).tolist()
    assert {total for _, total in seen} == {10}


def test_stop_tokens_end_the_answer_and_are_not_part_of_it() -> None:
    """The sampler drew it, nobody saw it, and the state does not hold it."""
    prompt = [3, 1, 4, 1, 5]
    tokens = expected_tokens(prompt, 6)
    stop = tokens[3]
    assert stop not in tokens[:3]
    seen: list[int] = []
    runtime = scripted(Script())
    done, _ = answer(runtime, prompt, options=GenerationOptions(6, (stop, 15)), on_token=seen.append)
    assert (done.tokens, done.finish, done.stop_token) == (tokens[:3], "stop", stop)
    assert seen == list(tokens[:3])
    assert runtime.tokens == (*prompt, *tokens[:3])


def test_a_stop_at_once_is_an_empty_answer() -> None:
    """The first token may be a stop."""
    first = expected_tokens([7], 1)[0]
    done, _ = answer(scripted(Script()), [7], options=GenerationOptions(6, (first,)))
    assert (done.tokens, done.finish, done.stop_token) == ((), "stop", first)


def test_a_consumer_may_end_the_answer() -> None:
    """The token it was shown counts, and the request is committed."""
    prompt = [3, 1, 4, 1, 5]
    seen: list[int] = []

    def enough(token: int) -> bool:
        seen.append(token)
        return len(seen) == 2

    runtime = scripted(Script())
    done, _ = answer(runtime, prompt, options=GenerationOptions(6, ()), on_token=enough)
    assert (done.tokens, done.finish, done.stop_token) == (expected_tokens(prompt, 2), "stop", None)
    assert runtime.tokens == (*prompt, done.tokens[0])


def test_masked_ids_are_never_sampled() -> None:
    """The next best one is, and the next token follows from it."""
    best = expected_tokens([7], 1)[0]
    runtime = scripted(Script(), masked=(best,))
    done, _ = answer(runtime, [7], options=GenerationOptions(1, ()))
    assert done.tokens == (1 if best == 0 else 0,)  # all others are equal, so the lowest id


def test_a_full_context_can_be_used(decoder: Decoder) -> None:
    """Prompt and answer together may take it all."""
    done, _ = answer(fresh(decoder), PROMPT, options=GenerationOptions(40 - len(PROMPT), ()))
    assert done.finish == "length"
    assert len(done.tokens) == 31


# --- Reuse -------------------------------------------------------------------------------------------


def test_a_continued_conversation_reuses_everything(decoder: Decoder) -> None:
    """A prompt that goes on where the state ends needs no checkpoint."""
    runtime = fresh(decoder)
    first, _ = answer(runtime)
    prompt = [*PROMPT, *first.tokens[:-1], 5, 6]
    done, logits = answer(runtime, prompt)
    alone, expected = answer(fresh(decoder), prompt)
    assert done.reused_tokens == len(PROMPT) + 3
    assert done.tokens == alone.tokens
    assert logits == expected


def test_a_divergent_prompt_reuses_what_it_can() -> None:
    """Attention goes back to the first difference, recurrent layers to the retained stable prefix."""
    for architecture, reused in (("qwen3", 4), ("qwen35", 3)):
        decoder = decoder_of(architecture)
        runtime = fresh(decoder)
        answer(runtime)
        done, logits = answer(runtime, OTHER)
        alone, expected = answer(fresh(decoder), OTHER)
        assert done.reused_tokens == reused
        assert done.tokens == alone.tokens
        assert logits == expected


def test_the_same_prompt_again_evaluates_its_last_token(decoder: Decoder) -> None:
    """Logits are not stored: the last prompt token is always evaluated."""
    runtime = fresh(decoder)
    first, logits = answer(runtime)
    again, same = answer(runtime)
    assert again.tokens == first.tokens
    assert same == logits
    assert again.reused_tokens == (3 if decoder.checkpoint_bytes else len(PROMPT) - 1)


def test_without_a_stable_prefix_a_recurrent_state_starts_anew() -> None:
    """So it does when the budget holds only the rollback."""
    decoder = decoder_of("qwen35")
    for budget, options in (
        (PLENTY, GenerationOptions(4, ())),
        (decoder.checkpoint_bytes * 2 - 1, OPTIONS),
    ):
        runtime = fresh(decoder, budget)
        answer(runtime, options=options)
        done, _ = answer(runtime, OTHER)
        assert done.reused_tokens == 0
        assert done.tokens == answer(fresh(decoder), OTHER)[0].tokens


def test_a_newer_stable_prefix_replaces_the_older_one() -> None:
    """Even where the budget holds no third copy, in conversations that grow."""
    for copies in (2, 3):
        runtime = scripted(Script(), copies * Script.checkpoint_bytes)
        answer(runtime, [1, 2, 3, 4, 5], options=GenerationOptions(2, (), stable_prefix=3))
        held = list(runtime.tokens)
        answer(runtime, [*held, 6, 7, 8], options=GenerationOptions(2, (), stable_prefix=len(held) + 2))
        done, _ = answer(runtime, [*held, 6, 7, 9], options=GenerationOptions(2, ()))
        assert done.reused_tokens == len(held) + 2
        assert done.tokens == expected_tokens([*held, 6, 7, 9], 2)


def test_a_retained_prefix_outlives_a_failed_request() -> None:
    """The failed request went back to the start; the next one finds state and checkpoint as before."""
    runtime = scripted(Script())
    answer(runtime, [1, 2, 3, 4, 5], options=GenerationOptions(2, (), stable_prefix=3))
    before = runtime.tokens
    with pytest.raises(CancelledError):
        answer(runtime, [9, 9, 9, 9], cancellation=Countdown(5))
    assert runtime.tokens == before
    done, _ = answer(runtime, [1, 2, 3, 8], options=GenerationOptions(3, ()))
    assert done.reused_tokens == 3
    assert done.tokens == expected_tokens([1, 2, 3, 8], 3)


@pytest.mark.parametrize("copies", [1, 2, 3, 5])
def test_checkpoints_stay_within_their_budget(copies: int) -> None:
    """At every step of a long series of requests all copies that are alive fit together."""
    budget = copies * Script.checkpoint_bytes + 4
    script = Script(64)
    runtime = scripted(script, budget)

    def watch() -> None:
        alive = [thing.nbytes for thing in gc.get_objects() if isinstance(thing, Checkpoint)]
        assert sum(alive) <= budget

    gc.collect()
    script.watch = watch
    draw = np.random.default_rng(copies)
    prompt: list[int] = []
    for _ in range(12):
        shared = int(draw.integers(0, len(prompt) + 1))
        prompt = [*prompt[:shared], *draw.integers(0, 16, int(draw.integers(1, 8))).tolist()][:30]
        options = GenerationOptions(3, (), stable_prefix=int(draw.integers(0, len(prompt))))
        if draw.integers(0, 3) == 0:
            with pytest.raises(CancelledError):
                answer(runtime, prompt, options=options, cancellation=Countdown(3))
        done, _ = answer(runtime, prompt, options=options)
        assert done.tokens == expected_tokens(prompt, 3)


def test_what_does_not_fit_the_budget_is_forgotten() -> None:
    """Keys that a prompt overwrites and the budget cannot hold: a failure then shortens the state."""
    runtime = scripted(Script(recurrent=False), Script.checkpoint_bytes)
    answer(runtime, [1, 2, 3, 4, 5, 6], options=GenerationOptions(1, ()))
    with pytest.raises(CancelledError):
        answer(runtime, [1, 2, 9], cancellation=Countdown(2))
    assert runtime.tokens == (1, 2)
    done, _ = answer(runtime, [1, 2, 3, 4, 8], options=GenerationOptions(2, ()))
    assert done.reused_tokens == 2
    assert done.tokens == expected_tokens([1, 2, 3, 4, 8], 2)


# --- Everything or nothing ---------------------------------------------------------------------------


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


# --- Budgets and validation --------------------------------------------------------------------------


def test_budgets_are_checked_before_anything_is_allocated() -> None:
    """Both name the bytes that are needed and those that are allowed."""
    script = Script()
    with pytest.raises(BudgetError, match="32 tokens needs 136 bytes of state, the budget is 135"):
        scripted(script, state_bytes=135)
    with pytest.raises(BudgetError, match="checkpoint needs 8 bytes, the budget is 7"):
        scripted(script, 7)
    assert script.states == 0
    scripted(script, 8, state_bytes=136)
    assert script.states == 1


@pytest.mark.parametrize(
    ("prompt", "options", "error", "words"),
    [
        ([], {}, InvalidInputError, "no tokens"),
        ([1, 16], {}, InvalidInputError, "token id 16 is outside the vocabulary of 16"),
        ([-1], {}, InvalidInputError, "token id -1"),
        ([1], {"stop_tokens": (16,)}, InvalidInputError, "token id 16"),
        ([1], {"max_tokens": 0}, InvalidInputError, "max_tokens is 0"),
        ([1], {"prefill_block": 0}, InvalidInputError, "block of 0"),
        ([1], {"prefill_block": 257}, InvalidInputError, "1 to 256"),
        ([1] * 30, {"max_tokens": 3}, ContextError, "32 tokens, but the prompt has 30 and 3"),
        ([1] * 33, {"max_tokens": 1}, ContextError, "the prompt has 33"),
    ],
)
def test_impossible_requests_are_refused_before_anything_is_touched(
    prompt: list[int], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    """By `validate` and `generate` alike; sampler, callbacks and state see nothing of it."""
    script = Script()
    runtime = scripted(script)
    answer(runtime, [1, 2])
    before, blocks = runtime.tokens, list(script.blocks)
    wanted = replace(GenerationOptions(2, ()), **options)
    touched: list[int] = []

    class Untouched(GreedySampler):
        """Notices being used."""

        def clone(self) -> Untouched:
            """Note it."""
            touched.append(1)
            return self

    with pytest.raises(error, match=words):
        runtime.validate(prompt, wanted)
    with pytest.raises(error, match=words):
        runtime.generate(prompt, wanted, sampler=Untouched(), on_token=touched.append)
    assert touched == []
    assert runtime.tokens == before
    assert script.blocks == blocks


def test_context_errors_carry_their_numbers() -> None:
    """The HTTP edge reports them apart."""
    with pytest.raises(ContextError) as caught:
        scripted(Script()).validate([1] * 30, GenerationOptions(5, ()))
    error = caught.value
    assert (error.prompt_tokens, error.reserved_tokens, error.context) == (30, 5, 32)


def test_too_many_stop_tokens_are_refused() -> None:
    """At most 256 different ones; repeats do not count."""
    script = Script()
    script.vocabulary_size = 1000
    runtime = scripted(script)
    runtime.validate([1], GenerationOptions(1, tuple(range(256)) * 2))
    with pytest.raises(InvalidInputError, match="more than 256"):
        runtime.validate([1], GenerationOptions(1, tuple(range(257))))


def test_what_is_wrong_first_is_said_first() -> None:
    """Poison, then the prompt, then its ids, then the options, then the context."""
    runtime = scripted(Script())
    cases = [
        (([], 0), "no tokens"),
        (([99] * 40, 0), "token id 99"),
        (([1] * 40, 0), "max_tokens"),
        (([1] * 40, 1), "context"),
    ]
    for (prompt, count), words in cases:
        with pytest.raises((InvalidInputError, ContextError), match=words):
            runtime.validate(prompt, GenerationOptions(count, ()))
    runtime.poisoned = True
    with pytest.raises(PoisonedError):
        runtime.validate([], GenerationOptions(0, ()))


def test_samplers_share_one_interface() -> None:
    """Both kinds are accepted where a `Sampler` is."""
    samplers: list[Sampler] = [GreedySampler(), ReferenceSampler(3, top_k=1)]
    found = {scripted(Script()).generate([1, 2], OPTIONS, sampler=sampler).tokens for sampler in samplers}
    assert found == {expected_tokens([1, 2], 4)}
