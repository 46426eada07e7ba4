"""Accuracy of a model file by task, on the engine; with PyTorch installed, also likelihoods side by side.

An answer counts if the text after the thought is right to the letter, or has the words that it must have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.chat import encode_chat
from engine.manifest import read_manifest
from engine.model import Model, load_model
from engine.runtime import GenerationOptions, Runtime
from training.questions import Question, questions
from training.tokens import FORMAT

MEMORY = 64_000_000
CONTEXT = 2048
LONGEST = 220


@dataclass(frozen=True)
class Score:
    """How many questions of a task were answered rightly, and one wrong answer as an example."""

    task: str
    right: int
    asked: int
    mistake: str | None


class Examinee:
    """A model that answers questions with its likeliest tokens."""

    def __init__(self, manifest: Path, activation_bits: int) -> None:
        self.model: Model = load_model(
            read_manifest(manifest).pin,
            memory_bytes=MEMORY,
            context=CONTEXT,
            threads=1,
            activation_bits=activation_bits,
        )
        decoder = self.model.decoder
        self._runtime = Runtime(decoder, checkpoint_bytes=2 * decoder.checkpoint_bytes)

    def complete(self, question: Question) -> str:
        """All that the model writes, thought included."""
        tokenizer = self.model.tokenizer
        prompt = encode_chat(tokenizer, FORMAT.render(question.messages, question.options))
        options = GenerationOptions(LONGEST, prompt.turn_ends, stable_prefix=prompt.stable_prefix)
        done = self._runtime.generate(prompt.tokens, options)
        return tokenizer.vocabulary.decode(done.tokens).decode("utf-8", "replace")

    def score(self, task: str, asked: list[Question]) -> Score:
        """The score of one task."""
        right, mistake = 0, None
        for question in asked:
            text = self.complete(question)
            if is_right(question, text):
                right += 1
            else:
                mistake = f"{question.messages[-1].content!r}: {text!r}, not {question.answer!r}"
        return Score(task, right, len(asked), mistake)


def is_right(question: Question, text: str) -> bool:
    """Whether a completion answers the question."""
    if question.options.enable_thinking is not False:
        _, closed, text = text.partition("</think>\n\n")
        if not closed:
            return False
    if question.words:
        return all(word in text for word in question.words)
    return text == question.answer


def scores(manifest: Path, count: int, activation_bits: int) -> Iterator[tuple[Score, Score]]:
    """The score of every task, with and without thinking."""
    examinee = Examinee(manifest, activation_bits)
    for (task, thinking), (_, direct) in zip(questions(count, True), questions(count, False), strict=True):
        yield examinee.score(task, thinking), examinee.score(task, direct)


def print_scores(manifest: Path, count: int, activation_bits: int, *, mistakes: bool) -> None:
    """A Markdown table of all scores."""
    print("| task | questions | right, thinking | right, not thinking |\n|---|---|---|---|")
    for thinking, direct in scores(manifest, count, activation_bits):
        shares = [f"{100 * score.right / score.asked:.1f} %" for score in (thinking, direct)]
        print(f"| {thinking.task} | {thinking.asked} | {shares[0]} | {shares[1]} |", flush=True)
        if mistakes:
            print(*(score.mistake for score in (thinking, direct) if score.mistake), sep="\n")
