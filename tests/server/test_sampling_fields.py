"""What the sampling fields do to an answer, over HTTP: with known logits, and with a small trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.decoder import Step
from engine.kernels.canon import Floats
from engine.runtime import Cancellation, Completion, GenerationOptions
from engine.sampling import Sampler
from server.backend import ModelFacts
from tests.runtimes import Script, scripted
from tests.server.raw_http import post
from tests.server.running import Running, running
from tests.server.scripted import ScriptedBackend
from tests.server.test_model_backend import load

PROMPT = [1, 1, 4]


class KnownLogits(Script):
    """A decoder that always gives 5 for token 0, 4.5 for 1, 4.2 for 2 and 0 for the others."""

    def evaluate(self, steps: Sequence[Step], check: Callable[[], None]) -> list[Floats]:
        """The same row after every token."""
        super().evaluate(steps, check)
        row = np.zeros((1, self.vocabulary_size), np.float32)
        row[0, :3] = 5, 4.5, 4.2
        return [row]


class KnownBackend(ScriptedBackend):
    """A backend over a real runtime with such a decoder; its tokens are letters."""

    @property
    def facts(self) -> ModelFacts:
        """With the decoder's sizes."""
        return replace(super().facts, vocabulary_size=16, context=32)

    def stop_tokens(self, turn_ends: Sequence[int]) -> tuple[int, ...]:
        """The last token."""
        return (15, *turn_ends)

    def shown(self, token: int) -> bytes:
        """A letter."""
        return b"abcdefghijklmnop"[token : token + 1]

    def generate(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        *,
        sampler: Sampler,
        cancellation: Cancellation,
        deadline: float,
        on_token: Callable[[int], bool],
        on_prefill: Callable[[int, int], None],
    ) -> Completion:
        """A fresh runtime's answer."""
        return scripted(KnownLogits()).generate_sampled_until(
            prompt,
            options,
            deadline,
            sampler,
            cancellation=cancellation,
            on_token=on_token,
            on_prefill=on_prefill,
        )


@pytest.fixture(scope="module")
def known() -> Iterator[int]:
    """The port of a server with known logits."""
    with running(KnownBackend()) as server:
        yield server.port


@pytest.fixture(scope="module")
def trained() -> Iterator[Running]:
    """A server with the small model."""
    with running(load()) as server:
        yield server


def text(port: int, **fields: Any) -> str:
    """Five tokens after a prompt of ids."""
    request = {"prompt": PROMPT, "temperature": 0, "max_tokens": 5} | fields
    response = post(port, "/v1/completions", request)
    assert response.status == 200, response.body
    answer: str = response.json()["choices"][0]["text"]
    return answer


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({}, "aaaaa"),
        # 5, 4.5, 4.2, of which those that were drawn lose 1 once: 4, then 3.5, then 3.2.
        ({"presence_penalty": 1}, "abcaa"),
        # a: 5, 4.4; b: 4.5, 3.9; c: 4.2; then a: 3.8, b: 3.9.
        ({"frequency_penalty": 0.6}, "abacb"),
        # The prompt has b (and e) in it: 2.25. a: 5, 2.5; c: 4.2, 2.1; then a: 2.5, and halved no further.
        ({"repetition_penalty": 2}, "acaaa"),
        ({"logit_bias": {"7": 100}}, "hhhhh"),
        ({"logit_bias": {"0": -100, "1": -0.5}}, "ccccc"),
        # b is 4.5 + 0.6, and 4.1 once it was drawn.
        ({"logit_bias": {"1": 0.6}, "presence_penalty": 1}, "bacbb"),
        ({"temperature": 2, "min_p": 1}, "aaaaa"),
        ({"logit_bias": {"15": 100}}, ""),
        ({"n": 1, "presence_penalty": None, "logit_bias": None, "min_p": None}, "aaaaa"),
    ],
)
def test_answers_from_known_logits(known: int, fields: dict[str, Any], answer: str) -> None:
    """As worked out by hand."""
    assert text(known, **fields) == answer


def test_draws_from_known_logits(known: int) -> None:
    """Seed 1234567 draws 0.35, 0.17, 0.53, 0.25, 0.89 from three equal logits, b, c and d: floor(3 u)."""
    bias = {"0": -100, "1": -4.5 + 50, "2": -4.2 + 50, "3": 50}
    sampled = text(known, temperature=1, top_k=3, top_p=1, seed=1234567, logit_bias=bias)
    assert sampled == "bcd"[1] + "bcd"[0] + "bcd"[1] + "bcd"[0] + "bcd"[2]


def test_a_bias_forces_a_token_of_a_real_model(trained: Running) -> None:
    """In a chat and in a completion, streamed or not; without the bias the answer is another."""
    forced = post(trained.port, "/v1/detokenize", {"token_ids": [72] * 4}).json()["text"]
    fields = {"temperature": 0, "max_tokens": 4, "logit_bias": {"72": 100}}
    chat = {"messages": [{"role": "user", "content": "Hello!"}]} | fields
    chat["chat_template_kwargs"] = {"enable_thinking": False}
    answer = post(trained.port, "/v1/chat/completions", chat).json()["choices"][0]["message"]
    assert answer["content"] == forced
    completion = {"prompt": "Hello!"} | fields
    assert post(trained.port, "/v1/completions", completion).json()["choices"][0]["text"] == forced
    del completion["logit_bias"]
    assert post(trained.port, "/v1/completions", completion).json()["choices"][0]["text"] != forced


def test_a_seed_repeats_an_answer_of_a_real_model(trained: Running) -> None:
    """Penalties included, whatever was asked in between."""

    def answer(seed: int) -> str:
        request = {"prompt": "Tell me", "max_tokens": 16, "temperature": 1.5, "top_k": 0, "top_p": 1}
        request |= {"seed": seed, "frequency_penalty": 0.5, "repetition_penalty": 1.1}
        found: str = post(trained.port, "/v1/completions", request).json()["choices"][0]["text"]
        return found

    first = answer(1)
    assert len({answer(seed) for seed in (2, 3, 4)}) > 1
    assert answer(1) == first
