"""What PyTorch makes of an exported file, in float32: likelihoods of held-out texts and greedy answers.

The engine's tests and the evaluation compare with these. Keys and values are not rounded here, nor inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the customary name
from torch import Tensor

from engine.chat import ChatOptions, Message, encode_chat
from engine.tokenizer import Tokenizer
from training.corpus import tools
from training.corpus.conversation import converse
from training.corpus.draw import Draw
from training.network import CHUNK, Network, Texts
from training.shape import Shape
from training.tokens import FORMAT, Encoder
from training.weights import read_weights

HELD_OUT_TEXTS = 6
LONGEST = 160


class Reference:
    """The weights of a file and PyTorch's formulas."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        torch.set_num_threads(1)  # the products are small
        self.shape = Shape()
        self.tokenizer = tokenizer
        self._network = Network(self.shape, 2048)
        self._weights = read_weights(path, self.shape)

    def logits(self, ids: list[int]) -> Tensor:
        """Logits [tokens, vocabulary] of one text."""
        padded = torch.tensor([ids + [0] * (-len(ids) % CHUNK)])
        with torch.no_grad():
            hidden = self._network.hidden(self._weights, Texts(padded, torch.zeros_like(padded)))
            return F.linear(hidden[0, : len(ids)], self._weights["output.weight"])

    def mean_nll(self, ids: list[int]) -> float:
        """Mean negative log-likelihood of each id but the first, in nats."""
        return float(F.cross_entropy(self.logits(ids[:-1]).double(), torch.tensor(ids[1:])))

    def answer(self, prompt: list[int], ends: tuple[int, ...]) -> tuple[list[int], list[float]]:
        """The likeliest ids up to an end, which is included, and the lead of each over the second best."""
        found: list[int] = []
        leads: list[float] = []
        while len(found) < LONGEST and (not found or found[-1] not in ends):
            best = self.logits(prompt + found)[-1].topk(2)
            found.append(int(best.indices[0]))
            leads.append(round(float(best.values[0] - best.values[1]), 4))
        return found, leads


@dataclass(frozen=True)
class Case:
    """A conversation to be answered."""

    messages: list[Message]
    options: ChatOptions


def cases() -> Mapping[str, Case]:
    """One conversation for each thing that the model can do, without near ties in what is the likeliest."""
    draw = Draw("golden", held_out=True)
    thinking, direct = ChatOptions(enable_thinking=True), ChatOptions(enable_thinking=False)
    offered = ChatOptions(enable_thinking=True, tools=tools.offer_both(draw))

    def user(text: str) -> list[Message]:
        return [Message("user", text)]

    introduced = [
        Message("user", "My name is Tavi."),
        Message("assistant", "Hello, Tavi! Nice to meet you."),
        Message("user", "What is the capital of Italy?"),
        Message("assistant", "The capital of Italy is Rome."),
        Message("user", "What is my name?"),
    ]
    call = tools.calculator_call("37 * 12")
    called = [
        Message("user", "What is 37 * 12?"),
        Message("assistant", "", "The calculator can do this.", (call,)),
        Message("tool", "444"),
    ]
    return {
        "story": Case(user("Tell me a story about a wolf named Otto on the hill."), direct),
        "story, thinking": Case(user("Tell me a story about a cow."), thinking),
        "sum, thinking": Case(user("What is 7 + 8?"), thinking),
        "sum": Case(user("What is 4 + 5?"), direct),
        "difference, thinking": Case(user("What is 15 - 6?"), thinking),
        "capital": Case(user("What is the capital of France?"), direct),
        "opposite": Case(user("What is the opposite of hot?"), direct),
        "counting": Case(user("Count from 3 to 9."), direct),
        "name after three turns": Case(introduced, direct),
        "not known": Case(user("Who invented the telephone?"), thinking),
        "tool call": Case(user("What is the weather in Paris?"), offered),
        "tool result": Case(called, offered),
    }


def held_out_texts(encoder: Encoder) -> Iterator[list[int]]:
    """Whole conversations of moderate length that training never had."""
    number = 0
    for _ in range(HELD_OUT_TEXTS):
        ids: list[int] = []
        while not 150 <= len(ids) <= 700:
            ids = encoder.encode(converse(Draw(f"held-out text {number}", held_out=True))).ids
            number += 1
        yield ids


def golden(path: Path, tokenizer: Tokenizer) -> dict[str, Any]:
    """All numbers for the tests."""
    reference = Reference(path, tokenizer)
    data = path.read_bytes()
    answers = {}
    for title, case in cases().items():
        prompt = encode_chat(tokenizer, FORMAT.render(case.messages, case.options))
        ids, leads = reference.answer(prompt.tokens, prompt.turn_ends)
        answers[title] = {
            "messages": [asdict(message) for message in case.messages],
            "enable_thinking": case.options.enable_thinking,
            "tools": list(case.options.tools),
            "prompt_ids": prompt.tokens,
            "greedy_ids": ids,
            "greedy_margins": leads,
            "text": tokenizer.vocabulary.decode(ids).decode(),
        }
    texts = [{"ids": ids, "mean_nll": reference.mean_nll(ids)} for ids in held_out_texts(Encoder(tokenizer))]
    return {"sha256": hashlib.sha256(data).hexdigest(), "held_out": texts, "greedy": answers}


def write_golden(path: Path, tokenizer: Tokenizer, target: Path) -> None:
    """Keep the numbers as JSON, one line a text and a conversation."""
    found = golden(path, tokenizer)
    held_out = ",\n".join(json.dumps(text) for text in found["held_out"])
    greedy = ",\n".join(f"{json.dumps(title)}: {json.dumps(case)}" for title, case in found["greedy"].items())
    head = f'{{"sha256": "{found["sha256"]}",\n'
    target.write_text(f'{head}"held_out": [\n{held_out}\n],\n"greedy": {{\n{greedy}\n}}}}\n', "utf-8")
