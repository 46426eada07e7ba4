"""Times that a user of the server sees: to the first token, cold or with a cached prefix, and between."""

from __future__ import annotations

import argparse
import os
from statistics import median
from typing import Any

from benchmarks.other_load import OtherLoad
from benchmarks.results import add_result_options, finish, new_result
from benchmarks.served import Answer, Served, running_server
from benchmarks.subject import add_engine_options, add_subject_options, count, engine_options, open_subject
from engine.model import DEFAULT_CONTEXT

DESCRIPTION = """\
First token: start the real server and time streamed chat completions through HTTP, as a client sees them.

Every round asks a question that shares nothing with an earlier one (cold), and then a next question in the
same conversation (cached prefix), once for each length of question. Printed are medians over the rounds of
the time to the first piece of text, and percentiles of the time between pieces. The demo model is measured
with --manifest deploy/demo-model.toml, once `python -m deploy model` has fetched it.

  python -m benchmarks first-token --manifest deploy/demo-model.toml
  python -m benchmarks first-token --model 1.7b --type PQ2_0 --words 20 --rounds 2
"""
WORDS = ("the", "river", "carries", "cold", "water", "past", "old", "stones", "to", "a", "distant", "sea")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)
    add_engine_options(parser)
    parser.add_argument(
        "--words", type=count, nargs="+", default=[20, 450], help="lengths of the first question (20 450)"
    )
    parser.add_argument("--max-tokens", type=count, default=48, help="most tokens of an answer (48)")
    parser.add_argument(
        "--context", type=count, help=f"longest sequence in tokens (the model's, at most {DEFAULT_CONTEXT})"
    )
    parser.add_argument("--rounds", type=count, default=5, help="rounds to take medians of (5)")
    add_result_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    subject, engine = open_subject(options), engine_options(options)
    asked: dict[str, list[Answer]] = {}
    with running_server(subject, engine, options.context) as served:
        load = OtherLoad([served.process])
        for number in range(options.rounds):
            for words in options.words:
                cold, cached = _conversation(served, words, number, options.max_tokens)
                asked.setdefault(f"{words} words, cold", []).append(cold)
                asked.setdefault(f"{words} words, next question", []).append(cached)
        conditions = {"other_processors": load.processors()}
    values: dict[str, Any] = {"ready_seconds": served.ready_seconds}
    values["questions"] = {name: _summary(answers) for name, answers in asked.items()}
    lines = [("ready", f"{served.ready_seconds:.2f} s after its start")]
    for name, summary in values["questions"].items():
        lines.append((name, _line(summary)))
    settings = {name: getattr(options, name) for name in ("words", "max_tokens", "context", "rounds")}
    finish(new_result("first-token", subject, engine, settings, values, conditions), lines, [], options.save)


def _conversation(served: Served, words: int, number: int, max_tokens: int) -> tuple[Answer, Answer]:
    """The answers to a question that is new from its first word, and to a next one."""
    opening = f"{words} {number} {os.urandom(4).hex()}"  # unlike any prompt that the server saw
    text = " ".join(WORDS[index % len(WORDS)] for index in range(words))
    messages = [
        {"role": "system", "content": f"{opening}. Answer at length."},
        {"role": "user", "content": f"{text}?"},
    ]
    cold = served.ask(messages, max_tokens)
    messages += [{"role": "assistant", "content": cold.text}, {"role": "user", "content": "And then?"}]
    return cold, served.ask(messages, max_tokens)


def _summary(answers: list[Answer]) -> dict[str, Any]:
    gaps = sorted(gap for answer in answers for gap in answer.gaps)
    return {
        "first_token_seconds": median(answer.first_seconds for answer in answers),
        "prompt_tokens": median(answer.prompt_tokens for answer in answers),
        "cached_tokens": median(answer.cached_tokens for answer in answers),
        "gap_seconds_p50": gaps[len(gaps) // 2] if gaps else None,
        "gap_seconds_p99": gaps[len(gaps) * 99 // 100] if gaps else None,
    }


def _line(summary: dict[str, Any]) -> str:
    text = (
        f"{1000 * summary['first_token_seconds']:.0f} ms to the first token "
        f"({summary['prompt_tokens']:.0f} tokens, {summary['cached_tokens']:.0f} of them cached)"
    )
    if summary["gap_seconds_p50"] is None:
        return text
    p50, p99 = 1000 * summary["gap_seconds_p50"], 1000 * summary["gap_seconds_p99"]
    return f"{text}, between tokens p50 {p50:.1f} ms, p99 {p99:.1f} ms"
