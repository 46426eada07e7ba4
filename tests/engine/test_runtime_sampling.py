from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from engine.decoder import Decoder
from engine.errors import CancelledError, DeadlineError
from engine.kernels import NATIVE_LEVELS
from engine.kernels.canon import Floats
from engine.runtime import Completion, GenerationOptions, Runtime
from engine.sampling import (
    ChainSampler,
    ChainSettings,
    GreedySampler,
    ReferenceSampler,
    Sampler,
    SwiftSampler,
)
from tests.models import build_decoder
from tests.runtimes import (
    OPTIONS,
    OTHER,
    PROMPT,
    Countdown,
    Script,
    decoder_of,
    expected_tokens,
    file_of,
    fresh,
    scripted,
)

SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "reference": lambda _: ReferenceSampler(1, 3.0, 0, 1.0),
    "swift": lambda size: SwiftSampler(1, size),
    "chain": lambda _: ChainSampler(
        ChainSettings(1, 3.0, 0, 1.0, 0.0, 0.5, 0.5, 1.3, {7: 2.0, 9: -2.0}), (7, 11)
    ),
}


@pytest.fixture(params=SAMPLERS)
def make(request: pytest.FixtureRequest) -> Callable[[int], Sampler]:
    """Every sampler that draws."""
    return SAMPLERS[request.param]


def sampled(
    runtime: Runtime, make: Callable[[int], Sampler], block: int = 3, stable: int = 3
) -> tuple[int, ...]:
    """Twelve tokens after the prompt."""
    options = GenerationOptions(12, (), prefill_block=block, stable_prefix=stable)
    return runtime.generate_sampled(PROMPT, options, make(runtime.decoder.vocabulary_size)).tokens


@pytest.mark.parametrize("architecture", ["qwen3", "qwen35"])
def test_draws_do_not_depend_on_blocks_or_what_is_cached(
    architecture: str, make: Callable[[int], Sampler]
) -> None:
    """Whatever the block, and whatever of the prompt the state or a checkpoint already holds."""
    decoder = decoder_of(architecture)
    expected = sampled(fresh(decoder), make)
    assert len(set(expected)) > 6  # they are draws, not one token again and again
    for block in (1, 2, 256):
        assert sampled(fresh(decoder), make, block) == expected
    warm = fresh(decoder)
    warm.generate(OTHER, OPTIONS)
    assert sampled(warm, make) == expected
    assert sampled(warm, make, stable=0) == expected


@pytest.mark.skipif(not NATIVE_LEVELS, reason="NumPy's kernels have no threads")
def test_draws_do_not_depend_on_threads(make: Callable[[int], Sampler]) -> None:
    """Nor on the backend."""
    expected = sampled(fresh(decoder_of("qwen35")), make)
    for threads in (1, 3):
        decoder: Decoder = build_decoder(
            file_of("qwen35"), context=40, threads=threads, backend=NATIVE_LEVELS[-1]
        )
        assert sampled(fresh(decoder), make) == expected


def test_a_failed_request_draws_the_same_again(make: Callable[[int], Sampler]) -> None:
    """Wherever it was stopped, draws and penalties are those of a sampler that saw nothing of it."""
    runtime = scripted(Script())
    options = GenerationOptions(6, ())
    expected = runtime.generate_sampled([3, 1, 4], options, make(16)).tokens
    for looks in range(0, 25, 4):
        sampler = make(16)
        with pytest.raises(CancelledError):
            runtime.generate_sampled([9, 9, 9, 9], options, sampler, cancellation=Countdown(looks))
        assert runtime.generate_sampled([3, 1, 4], options, sampler).tokens == expected


def test_what_a_sampler_shares_is_not_taken_back() -> None:
    """Draws are; what a sampler of the caller's has told others is the caller's to mend."""
    notes: list[int] = []

    class Noting(ReferenceSampler):
        """Writes its draws down where clones write too."""

        def sample(self, logits: Floats) -> int:
            """Draw, and note it."""
            notes.append(super().sample(logits))
            return notes[-1]

    runtime, sampler = scripted(Script()), Noting(5, 3.0, 0, 1.0)
    with pytest.raises(CancelledError):
        runtime.generate_sampled([1, 2], OPTIONS, sampler, cancellation=Countdown(6))
    (first,) = notes
    again = runtime.generate_sampled([1, 2], OPTIONS, sampler).tokens
    assert again[0] == first
    assert notes == [first, *again]


def test_generate_takes_the_likeliest_tokens() -> None:
    """As any sampler does that is left no choice."""
    expected = expected_tokens([1, 2], 4)
    seen: list[int] = []
    assert scripted(Script()).generate([1, 2], OPTIONS, on_token=seen.append).tokens == expected
    assert tuple(seen) == expected
    samplers: list[Sampler] = [
        GreedySampler(),
        ReferenceSampler(3, top_k=1),
        ChainSampler(ChainSettings(3, temperature=0)),
    ]
    for sampler in samplers:
        assert scripted(Script()).generate_sampled([1, 2], OPTIONS, sampler).tokens == expected


def test_only_the_call_with_a_deadline_has_one() -> None:
    """A time of the monotonic clock, which is over or is not."""
    sampler = ReferenceSampler(3, top_k=1)
    with pytest.raises(DeadlineError):
        scripted(Script()).generate_sampled_until([1, 2], OPTIONS, time.monotonic(), sampler)
    later = time.monotonic() + 3600
    done = scripted(Script()).generate_sampled_until([1, 2], OPTIONS, later, sampler)
    assert done.tokens == expected_tokens([1, 2], 4)


@pytest.mark.parametrize("greedy", [True, False])
def test_every_call_can_be_cancelled_and_reports_its_prefill(greedy: bool) -> None:
    """The three differ in sampler and deadline alone."""
    runtime = scripted(Script())

    def call(**options: Any) -> Completion:
        if greedy:
            return runtime.generate([1, 2], OPTIONS, **options)
        return runtime.generate_sampled([1, 2], OPTIONS, GreedySampler(), **options)

    seen: list[tuple[int, int]] = []
    call(on_prefill=lambda *done: seen.append(done))
    assert seen == [(1, 2), (2, 2)]
    with pytest.raises(CancelledError):
        call(cancellation=Countdown(0))
