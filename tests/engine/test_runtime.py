from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.decoder import Decoder
from engine.errors import (
    BudgetError,
    CancelledError,
    ContextError,
    InvalidInputError,
    PoisonedError,
)
from engine.runtime import GenerationOptions
from engine.sampling import GreedySampler
from engine.state import Checkpoint
from tests.runtimes import (
    OPTIONS,
    OTHER,
    PLENTY,
    PROMPT,
    Countdown,
    Script,
    answer,
    decoder_of,
    expected_tokens,
    fresh,
    scripted,
)


@pytest.fixture(params=["qwen3", "qwen35"])
def decoder(request: pytest.FixtureRequest) -> Decoder:
    """A decoder whose states can be cut off, and one whose states cannot."""
    return decoder_of(str(request.param))


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
        runtime.generate_sampled(prompt, wanted, Untouched(), on_token=touched.append)
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
