"""A real model against another engine: SmolLM2-135M-Instruct, mostly Q4_1.

The other engine rounds activations to 8 bits in blocks of 32, which moves its logits by a relative 0.02 to
0.05. Where its choice differs from ours, a float64 evaluation of the same file decides.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.artifact import Pin
from engine.decoder import Step
from engine.kernels.canon import Floats
from engine.model import Model, load_model
from engine.runtime import GenerationOptions, Runtime
from tests.float64_graph import Float64Model
from tests.models import DATA, clear_best, relative_rmse

NBYTES = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
END = 2

GOLDEN: dict[str, Any] = json.loads((DATA / "smollm2-135m-q4_1.json").read_text())
PROMPTS = ["raw", "chat_france", "chat_story"]

# Every step at which the other engine's greedy choice is not ours: (its id, ours, its margin, what float64
# gives ours over its id). The first is no near tie by its own count, but its logits are off by more than
# that there: float64 prefers our id by 0.22.
DIFFERENT = {
    ("raw", 5): (1797, 2988, 0.2376, 0.2198),
    ("chat_story", 4): (1205, 1911, 0.0046, 0.2414),
    ("chat_story", 7): (669, 339, 0.0306, 0.0399),
}
DIFFERENT_IN_PROMPT = {("chat_story", 25): (253, 563), ("chat_story", 31): (655, 1055)}


@pytest.fixture(scope="module")
def models(smollm2_path: Path) -> dict[int, Model]:
    """The verified file at both precisions."""
    pin = Pin(smollm2_path, NBYTES, SHA256)
    return {
        bits: load_model(pin, memory_bytes=1 << 30, context=128, activation_bits=bits) for bits in (8, 16)
    }


@pytest.fixture(scope="module")
def exact(smollm2_path: Path) -> dict[str, NDArray[np.float64]]:
    """Float64 logits along each prompt and the other engine's answer."""
    model = Float64Model(smollm2_path.read_bytes())
    return {name: model.logits(forced(name)) for name in PROMPTS}


@pytest.fixture(scope="module")
def ours(models: dict[int, Model]) -> dict[int, dict[str, Floats]]:
    """Our logits along the same ids, by precision and prompt."""
    return {
        bits: {
            name: model.decoder.evaluate([Step(model.decoder.new_state(), forced(name), "all")])[0]
            for name in PROMPTS
        }
        for bits, model in models.items()
    }


def forced(name: str) -> list[int]:
    """A prompt and the other engine's answer, whose logits are wanted at every position."""
    ids: list[int] = GOLDEN[name]["prompt_ids"] + GOLDEN[name]["greedy_ids"][:-1]
    return ids


def answer_rows(name: str, logits: NDArray[Any]) -> NDArray[Any]:
    """The rows that choose the answer's tokens."""
    rows: NDArray[Any] = logits[len(GOLDEN[name]["prompt_ids"]) - 1 :]
    return rows


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_become_the_same_ids(models: dict[int, Model], name: str) -> None:
    """With control tokens parsed where the other engine parsed them."""
    golden = GOLDEN[name]
    policy: Literal["parse", "literal"] = "parse" if golden["parse_special"] else "literal"
    assert models[16].tokenizer.encode(golden["prompt"], policy) == golden["prompt_ids"]


@pytest.mark.parametrize("name", PROMPTS)
def test_greedy_answers_differ_only_where_named(ours: dict[int, dict[str, Floats]], name: str) -> None:
    """Given the other engine's answer, every step of 40 chooses as it did, but for the named ones."""
    rows = answer_rows(name, ours[16][name])
    golden = GOLDEN[name]
    found = {
        (name, step): (its, own, golden["greedy_margins"][step])
        for step, (its, own) in enumerate(zip(golden["greedy_ids"], rows.argmax(-1).tolist(), strict=True))
        if its != own
    }
    assert found == {key: entry[:3] for key, entry in DIFFERENT.items() if key[0] == name}


@pytest.mark.parametrize("name", PROMPTS)
def test_float64_decides_for_us(
    ours: dict[int, dict[str, Floats]], exact: dict[str, NDArray[np.float64]], name: str
) -> None:
    """Every choice along prompt and answer is that of exact arithmetic, the disputed ones included."""
    np.testing.assert_array_equal(ours[16][name].argmax(-1), exact[name].argmax(-1))
    rows = answer_rows(name, exact[name])
    for (prompt, step), (its, own, _, lead) in DIFFERENT.items():
        if prompt == name:
            assert rows[step, own] - rows[step, its] == pytest.approx(lead, abs=0.001)


@pytest.mark.parametrize("name", PROMPTS)
def test_logits_are_closer_to_float64_than_the_other_engine(
    ours: dict[int, dict[str, Floats]], exact: dict[str, NDArray[np.float64]], name: str
) -> None:
    """At 16 bits by far; at 8 bits within the same class, and right wherever the best id leads clearly."""
    last = len(GOLDEN[name]["prompt_ids"]) - 1
    with np.load(DATA / "smollm2-135m-q4_1.npz") as file:
        other = file[f"{name}_last_prompt_logits"]
    narrow, wide = ours[8][name], ours[16][name]
    assert relative_rmse(wide, exact[name]) < 0.001
    assert relative_rmse(wide[last], exact[name][last]) < relative_rmse(other, exact[name][last]) / 10
    assert relative_rmse(narrow, exact[name]) < 0.05
    certain = clear_best(exact[name], 0.5)
    np.testing.assert_array_equal(narrow.argmax(-1)[certain], exact[name].argmax(-1)[certain])


@pytest.mark.parametrize("name", PROMPTS)
def test_best_ids_along_the_prompt(ours: dict[int, dict[str, Floats]], name: str) -> None:
    """The same at every position but two, where float64 prefers ours by 0.26 and by 0.17."""
    with np.load(DATA / "smollm2-135m-q4_1.npz") as file:
        golden = file[f"{name}_prompt_argmax"].tolist()
    best = ours[16][name][: len(golden)].argmax(-1).tolist()
    found = {(name, at): pair for at, pair in enumerate(zip(golden, best, strict=True)) if len({*pair}) == 2}
    assert found == {key: pair for key, pair in DIFFERENT_IN_PROMPT.items() if key[0] == name}


def test_the_capital_of_france(models: dict[int, Model]) -> None:
    """Generated freely with reused prefix or without, the whole answer is the other engine's."""
    model, golden = models[16], GOLDEN["chat_france"]
    runtime = Runtime(model.decoder, checkpoint_bytes=0)
    for reused in (0, len(golden["prompt_ids"]) - 1):
        done = runtime.generate(golden["prompt_ids"], GenerationOptions(24, (END,)))
        assert done.reused_tokens == reused
        assert [*done.tokens, done.stop_token] == golden["greedy_ids"]
        assert model.tokenizer.vocabulary.decode(done.tokens) == b"The capital of France is Paris."


def test_a_free_answer_follows_the_other_engine_to_the_named_step(models: dict[int, Model]) -> None:
    """Five tokens of the raw prompt, then the first difference."""
    golden = GOLDEN["raw"]
    runtime = Runtime(models[16].decoder, checkpoint_bytes=0)
    done = runtime.generate(golden["prompt_ids"], GenerationOptions(6, ()))
    assert list(done.tokens) == [*golden["greedy_ids"][:5], DIFFERENT[("raw", 5)][1]]
