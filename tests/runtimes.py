"""Runtimes to test: over small random models, and over a scripted decoder whose answers are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from engine.decoder import Decoder, Step
from engine.kernels.canon import Floats
from engine.memory import AttentionMemory, DeltaMemory, LayerMemory
from engine.runtime import Cancellation, Completion, GenerationOptions, Runtime
from engine.state import State
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


def fresh(decoder: Decoder, budget: int = PLENTY, **options: Any) -> Runtime:
    """A runtime that has seen nothing."""
    return Runtime(decoder, checkpoint_bytes=budget, **options)


def answer(
    runtime: Runtime, prompt: Sequence[int] = PROMPT, **options: Any
) -> tuple[Completion, list[bytes]]:
    """A completion with the bytes of all logits that were sampled from."""
    sampler = Recorder()
    deadline = options.pop("deadline", math.inf)
    done = runtime.generate_sampled_until(
        prompt, options.pop("options", OPTIONS), deadline, sampler, **options
    )
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
