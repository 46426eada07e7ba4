"""Where the time of one decode step and of one prefill block goes, operation by operation."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.decode import fill
from benchmarks.other_load import OtherLoad
from benchmarks.results import add_result_options, finish, new_result
from benchmarks.stopwatch import Stopwatch
from benchmarks.subject import (
    add_engine_options,
    add_subject_options,
    count,
    engine_options,
    open_subject,
    token_ids,
)
from benchmarks.targets import PYTHON_SHARE, Target
from engine.decoder import Step

DESCRIPTION = """\
Profile: time every call into the kernels during decode steps and prefill blocks.

Printed are, for an average step and an average block, the calls and milliseconds of each operation and its
share; what is left of the whole is Python between the kernels. Timing the calls takes time too, as much as
timing calls of nothing takes; that is a line of its own.

  python -m benchmarks profile --model 1.7b --type PQ2_0
  python -m benchmarks profile --context-fill 4096 --block 256 --steps 8
"""
PYTHON = "Python between kernels"
TIMING = "timing the calls"

Profile = dict[str, dict[str, float]]  # operation → its calls and seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)
    add_engine_options(parser)
    parser.add_argument("--steps", type=count, default=32, help="decode steps to average (32)")
    parser.add_argument("--block", type=count, default=256, help="tokens of a prefill block (256)")
    parser.add_argument("--blocks", type=count, default=4, help="prefill blocks to average (4)")
    parser.add_argument(
        "--context-fill", type=count, default=64, metavar="N", help="tokens that the sequence has before (64)"
    )
    add_result_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    subject, engine = open_subject(options), engine_options(options)
    past, steps, block = options.context_fill, options.steps, options.block
    model = engine.load(subject, past + max(steps, block))
    decoder = model.decoder
    state = decoder.new_state()
    ids = token_ids(subject, past + max(steps, block))
    fill(decoder, state, ids[:past])
    start = state.checkpoint(past)
    watch = Stopwatch()
    watch.attach(model.kernels)

    load = OtherLoad()
    one_by_one = [partial(decoder.evaluate, [Step(state, [token])]) for token in ids[past : past + steps]]
    decode = _average(watch, one_by_one, None)
    whole = partial(decoder.evaluate, [Step(state, ids[past : past + block], "none")])
    prefill = _average(watch, [whole] * options.blocks, partial(state.restore, start))
    conditions = {"other_processors": load.processors()}
    settings = {name: getattr(options, name) for name in ("steps", "block", "blocks", "context_fill")}
    result = new_result(
        "profile", subject, engine, settings, {"decode": decode, "prefill": prefill}, conditions
    )
    lines = [
        *_lines("decode", "one step", decode),
        *_lines("prefill", f"one block of {block} tokens", prefill),
    ]
    targets = []
    if subject.model in PYTHON_SHARE:
        share = decode[PYTHON]["seconds"] / (seconds_of(decode) - decode[TIMING]["seconds"])
        targets.append(Target("Python in a step", PYTHON_SHARE[subject.model], share, at_most=True))
    finish(result, lines, targets, options.save)


def seconds_of(profile: Profile) -> float:
    """The whole time of a step or block."""
    return sum(entry["seconds"] for entry in profile.values())


def _average(
    watch: Stopwatch, tasks: Sequence[Callable[[], object]], before: Callable[[], object] | None
) -> Profile:
    """Calls and seconds of an average task by operation, the slowest first; `before` is not timed."""
    elapsed = 0.0
    watch.clear()
    for task in tasks:
        if before is not None:
            before()
        started = time.perf_counter()
        task()
        elapsed += time.perf_counter() - started
    count = len(tasks)
    slowest_first = sorted(watch.seconds, key=lambda name: -watch.seconds[name])
    profile = {
        name: {"calls": watch.calls[name] / count, "seconds": watch.seconds[name] / count}
        for name in slowest_first
    }
    timing = watch.seconds_of_timing() / count
    rest = (elapsed - sum(watch.seconds.values())) / count - timing
    return {
        **profile,
        PYTHON: {"calls": 0.0, "seconds": rest},
        TIMING: {"calls": 0.0, "seconds": timing},
    }


def _lines(label: str, what: str, profile: Profile) -> list[tuple[str, str]]:
    whole = seconds_of(profile)
    lines = [(label, f"{what}: {whole * 1000:.3f} ms")]
    for name, entry in profile.items():
        calls = f"{entry['calls']:.0f} calls" if entry["calls"] else ""
        share = entry["seconds"] / whole
        lines.append(("", f"{name:44} {calls:>10} {entry['seconds'] * 1000:10.3f} ms {share:7.1%}"))
    return lines
