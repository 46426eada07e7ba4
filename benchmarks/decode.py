"""Tokens a second when one token follows another, and what share of the memory's speed that is."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks.bandwidth import ReadSpeed
from benchmarks.peer import add_peer_options, peer_beside
from benchmarks.results import add_result_options, finish, new_result
from benchmarks.rounds import Rounds, bandwidth_line, measure, peer_lines, speed_line
from benchmarks.subject import (
    EngineOptions,
    Subject,
    add_engine_options,
    add_subject_options,
    count,
    engine_options,
    open_subject,
    token_ids,
)
from benchmarks.targets import decode_targets
from engine.decoder import Decoder, Step
from engine.huge_pages import huge_page_bytes
from engine.state import State

DESCRIPTION = """\
Decode: evaluate one token after another, as when an answer is generated.

Every round decodes --steps tokens with our engine, with a reading of the memory every tenth of a second, then
as many with the peer. Printed are medians over the rounds: tokens a second, the bytes of weights that this
reads, and the share of the bandwidth that the readings of the same round had; beside a peer also the ratio.

  python -m benchmarks decode --model 1.7b --type Q2_0 --peer-python /path/to/environment/bin/python
  python -m benchmarks decode --model 27b --type PQ2_0 --steps 8 --bits 8 --save results.jsonl
  python -m benchmarks decode --context-fill 4096 --kernel avx2
"""
PROMPT_TOKENS = 4
READING_SECONDS = 0.1  # of decoding between two readings of the memory, which empty the caches
FILL_BLOCK = 256
SHORT = 64  # positions up to which a step is reading weights, as the targets have it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)
    add_engine_options(parser)
    parser.add_argument("--steps", type=count, default=32, help="tokens to decode in a round (32)")
    parser.add_argument(
        "--context-fill",
        type=count,
        default=PROMPT_TOKENS,
        metavar="N",
        help=f"tokens that the sequence has before ({PROMPT_TOKENS})",
    )
    parser.add_argument("--rounds", type=count, default=5, help="rounds to take medians of (5)")
    add_peer_options(parser)
    add_result_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    subject, engine = open_subject(options), engine_options(options)
    past: int = options.context_fill
    steps: int = options.steps
    model = engine.load(subject, past + steps)
    decoder = model.decoder
    on_huge_pages = huge_page_bytes()
    state = decoder.new_state()
    ids = token_ids(subject, past + steps)
    fill(decoder, state, ids[:past])
    start = state.checkpoint(past)

    def ours(read: Callable[[], None]) -> float:
        state.restore(start)
        elapsed, unread = 0.0, 0.0
        read()
        for token in ids[past:]:
            if unread >= READING_SECONDS:
                read()
                unread = 0.0
            started = time.perf_counter()
            decoder.evaluate([Step(state, [token])])
            seconds = time.perf_counter() - started
            elapsed += seconds
            unread += seconds
        read()
        return steps / elapsed

    with peer_beside(options.peer_python, subject, engine.threads, past + steps + 8) as peer:
        theirs = partial(peer.decode, ids[:past], steps) if peer is not None else None
        children = [peer.process] if peer is not None else []
        speed = ReadSpeed(model.kernels, model.data)
        rounds = measure(options.rounds, speed, ours, theirs, children)
        beside = rounds.compared(peer)
    if beside is not None:
        beside["share"] = beside["tokens_per_second"] * subject.weight_bytes / rounds.bandwidth
    _report(options, subject, engine, rounds, beside, on_huge_pages)


def fill(decoder: Decoder, state: State, ids: list[int]) -> None:
    """Put tokens into a state in large blocks."""
    for first in range(0, len(ids), FILL_BLOCK):
        decoder.evaluate([Step(state, ids[first : first + FILL_BLOCK], "none")])


def _report(
    options: argparse.Namespace,
    subject: Subject,
    engine: EngineOptions,
    rounds: Rounds,
    beside: dict[str, Any] | None,
    on_huge_pages: int | None,
) -> None:
    rate = median(rounds.ours)
    used = rate * subject.weight_bytes
    share = rounds.share(subject.weight_bytes)
    more = f", {1000 / rate:.4g} ms each, {used / 1e9:.3g} GB/s of weights, {share:.1%} of the bandwidth"
    lines = [bandwidth_line(rounds, engine.threads), speed_line("ours", rounds.ours, more)]
    if on_huge_pages is not None:
        lines.append(("pages", f"{on_huge_pages / 1e6:.0f} MB of the process lie on huge pages"))
    lines += peer_lines(beside, f", {beside['share']:.1%} of the bandwidth" if beside is not None else "")
    settings = {"steps": options.steps, "context_fill": options.context_fill, "rounds": options.rounds}
    values = {
        "tokens_per_second": rate,
        "bytes_per_second": used,
        "share": share,
        "huge_page_bytes": on_huge_pages,
        "rounds": rounds.ours,
    }
    result = new_result("decode", subject, engine, settings, values, rounds.conditions(), beside)
    ratio = beside["ratio"] if beside is not None else None
    targets = decode_targets(subject.model, subject.type, share, ratio)
    finish(result, lines, targets if options.context_fill <= SHORT else [], options.save)
