from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from engine.decoder import Step
from engine.kernels.canon import Floats
from engine.runtime import GenerationOptions, Runtime
from tests.models import DATA, golden_decoder
from tests.vocabularies import model_tokenizer

GOLDEN = json.loads((DATA / "trained-qwen35.json").read_text())
PROMPTS = list(GOLDEN["greedy"])
FILES = ["trained-qwen35-pq2_0-had", "trained-qwen35-ptq1_0-had"]
NEAR_TIE = 0.05


def evaluate(file: str, bits: int, ids: list[int]) -> Floats:
    """Logits at every position."""
    decoder = golden_decoder(file, bits)
    return decoder.evaluate([Step(decoder.new_state(), ids, "all")])[0]


def mean_nll(logits: Floats, ids: list[int]) -> float:
    """Mean negative log-likelihood of each id but the first, given the ones before."""
    wide = logits.astype(np.float64)
    shifted = wide - wide.max(-1, keepdims=True)
    log_likelihood = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -float(np.mean(log_likelihood[np.arange(len(ids) - 1), ids[1:]]))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_answers(file: str, bits: int, prompt: str) -> None:
    """Generated freely, each answer is the training framework's to its end; no step had to be named a tie."""
    expected = GOLDEN["greedy"][prompt]
    decoder = golden_decoder(file, bits)
    *answer, end = expected["greedy_ids"]
    done = Runtime(decoder, checkpoint_bytes=decoder.checkpoint_bytes).generate(
        expected["prompt_ids"], GenerationOptions(80, (end,))
    )
    assert list(done.tokens) == answer
    assert (done.finish, done.stop_token) == ("stop", end)
    text = model_tokenizer(f"{file}.gguf").vocabulary.decode([*done.tokens, end])
    assert text.decode() == expected["text"]


@pytest.mark.parametrize(("bits", "tolerance"), [(8, 0.2), (16, 0.01)])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_margins_along_the_answers(prompt: str, bits: int, tolerance: float) -> None:
    """With the golden answer given, every step chooses as golden and leads by as much, near ties included."""
    expected = GOLDEN["greedy"][prompt]
    ids = expected["prompt_ids"] + expected["greedy_ids"][:-1]
    logits = evaluate(FILES[0], bits, ids)[len(expected["prompt_ids"]) - 1 :]
    ranked = np.sort(logits, axis=-1)
    np.testing.assert_allclose(ranked[:, -1] - ranked[:, -2], expected["greedy_margins"], atol=tolerance)
    clear = np.array(expected["greedy_margins"]) >= NEAR_TIE
    np.testing.assert_array_equal(logits.argmax(-1)[clear], np.array(expected["greedy_ids"])[clear])


@pytest.mark.parametrize(("bits", "tolerance"), [(8, 0.01), (16, 0.001)])
@pytest.mark.parametrize("sequence", range(4))
def test_held_out_likelihood(sequence: int, bits: int, tolerance: float) -> None:
    """Text that training never saw is as likely as the training framework found it."""
    held_out: dict[str, Any] = GOLDEN["held_out"][sequence]
    found = mean_nll(evaluate(FILES[0], bits, held_out["ids"][:-1]), held_out["ids"])
    assert found == pytest.approx(held_out["mean_nll"], rel=tolerance)


@pytest.mark.parametrize("bits", [8, 16])
def test_both_files_are_one_model(bits: int) -> None:
    """The lossless PTQ1_0 twin gives the bytes of the PQ2_0 file."""
    ids = GOLDEN["held_out"][0]["ids"][:64]
    assert evaluate(FILES[0], bits, ids).tobytes() == evaluate(FILES[1], bits, ids).tobytes()
