"""Tokens a second when a whole prompt is known, which is evaluated in blocks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.bandwidth import ReadSpeed
from benchmarks.peer import add_peer_options, peer_beside
from benchmarks.results import add_result_options, finish, new_result
from benchmarks.rounds import bandwidth_line, measure, peer_lines, speed_line
from benchmarks.subject import (
    add_engine_options,
    add_subject_options,
    count,
    engine_options,
    open_subject,
    token_ids,
)
from benchmarks.targets import prefill_targets
from engine.decoder import Step
from engine.runtime import MAX_PREFILL_BLOCK

DESCRIPTION = """\
Prefill: evaluate a prompt of --tokens tokens in blocks of --block, as before an answer.

Every round evaluates the whole prompt anew, with our engine and then with the peer. Printed are medians over
the rounds, and beside a peer the ratio to it. A peer that is slow may get a shorter prompt (--peer-tokens):
where it has no code for whole blocks, its speed hardly depends on the length.

  python -m benchmarks prefill --model 1.7b --type Q1_0 --peer-python /path/to/environment/bin/python
  python -m benchmarks prefill --tokens 8192 --block 256 --rounds 1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)
    add_engine_options(parser)
    parser.add_argument("--tokens", type=count, default=512, help="length of the prompt (512)")
    parser.add_argument(
        "--block",
        type=count,
        default=MAX_PREFILL_BLOCK,
        help=f"tokens evaluated together ({MAX_PREFILL_BLOCK}, the most that a request may ask for)",
    )
    parser.add_argument("--rounds", type=count, default=3, help="rounds to take medians of (3)")
    add_peer_options(parser)
    parser.add_argument("--peer-tokens", type=count, help="length of the peer's prompt (the same)")
    add_result_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    subject, engine = open_subject(options), engine_options(options)
    tokens: int = options.tokens
    block, theirs_tokens = options.block, options.peer_tokens or tokens
    model = engine.load(subject, tokens)
    decoder = model.decoder
    state = decoder.new_state()
    ids = token_ids(subject, max(tokens, theirs_tokens))

    def ours(read: Callable[[], None]) -> float:
        state.clear()
        read()
        started = time.perf_counter()
        for first in range(0, tokens, block):
            part = ids[first : min(first + block, tokens)]
            decoder.evaluate([Step(state, part, "last" if first + block >= tokens else "none")])
        elapsed = time.perf_counter() - started
        read()
        return tokens / elapsed

    with peer_beside(options.peer_python, subject, engine.threads, theirs_tokens + 8) as peer:
        theirs = partial(peer.prefill, ids[:theirs_tokens]) if peer is not None else None
        children = [peer.process] if peer is not None else []
        speed = ReadSpeed(model.kernels, model.data)
        rounds = measure(options.rounds, speed, ours, theirs, children)
        beside = rounds.compared(peer)
    if beside is not None:
        beside["tokens"] = theirs_tokens
    rate = median(rounds.ours)
    lines = [bandwidth_line(rounds, engine.threads), speed_line("ours", rounds.ours), *peer_lines(beside)]
    settings = {"tokens": tokens, "block": block, "rounds": options.rounds}
    values = {"tokens_per_second": rate, "rounds": rounds.ours}
    result = new_result("prefill", subject, engine, settings, values, rounds.conditions(), beside)
    ratio = beside["ratio"] if beside is not None else None
    targets = prefill_targets(subject.model, subject.type, engine.kernel, ratio)
    finish(result, lines, targets, options.save)
