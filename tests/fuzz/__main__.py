"""The long run: `python -m tests.fuzz [TARGET ...] [--cases N] [--seed N]`, a line of result a target.

Cases come in rounds, each from a seed of its own, so that a round can be had again alone, and so that what
the generator remembers of a round is gone with it. Where atheris is installed, as many cases again are
searched by coverage. Exit code 1: a case failed (it is shown) or took ten seconds, or memory grew with them.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

from tests.fuzz import coverage_guided
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

ROUND = 1000
ROUND_SECONDS = 600  # a round takes some; after so many it is hanging and the process ends
CASE_SECONDS = 10  # a case takes milliseconds
MEASURED_ROUNDS = 20  # in fewer, what is kept once (imports, caches) would look like growth
GROWTH_BYTES = 8 << 20  # of memory from the first quarter of the rounds to the last: 110 bytes a case
GROWTH_BLOCKS = 40_000  # of Python's own blocks; the generator itself keeps some 15,000 more by then


class Watch:
    """What cases cost: how many there were, the slowest, and memory after each round."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.cases = 0
        self.slowest = 0.0
        self.memory: list[int] = []
        self.blocks: list[int] = []

    def check(self, case: Any) -> None:
        """The target's check, counted and timed."""
        begin = time.process_time()
        self.target.check(case)
        self.slowest = max(self.slowest, time.process_time() - begin)
        self.cases += 1

    def end_round(self) -> None:
        """Note the memory in use."""
        gc.collect()
        self.blocks.append(sys.getallocatedblocks())
        self.memory.append(resident_bytes())


def main() -> int:
    """Run the targets asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes the engine's parsers.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all if none")
    parser.add_argument("--cases", type=int, default=100_000, metavar="N", help="for each target (100000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first round (0)")
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    good = True
    for name in given.targets or TARGETS:
        good &= run(TARGETS[name], given.cases, given.seed)
        if find_spec("atheris") is not None:
            good &= run_by_coverage(name, given.cases)
    return 0 if good else 1


def run(target: Target, cases: int, first_seed: int) -> bool:
    """Rounds until there were `cases`; whether all were quick and memory flat. Raises a failing case."""
    watch = Watch(target)
    begin = time.process_time()
    number = first_seed
    while watch.cases < cases:
        faulthandler.dump_traceback_later(ROUND_SECONDS, exit=True)
        target.run(min(ROUND, cases - watch.cases), number, watch.check)
        faulthandler.cancel_dump_traceback_later()
        watch.end_round()
        number += 1
    memory, blocks = growth(watch.memory), growth(watch.blocks)
    flat = number - first_seed < MEASURED_ROUNDS or (memory <= GROWTH_BYTES and blocks <= GROWTH_BLOCKS)
    print(
        f"{target.name}: {watch.cases} cases, {time.process_time() - begin:.0f} s of CPU, slowest "
        f"{watch.slowest * 1000:.1f} ms, memory {memory / 2**20:+.1f} MiB, blocks {blocks:+.0f}"
        f"{'' if flat else ': NOT FLAT'}",
        flush=True,
    )
    return flat and watch.slowest < CASE_SECONDS


def run_by_coverage(name: str, cases: int) -> bool:
    """The same target under atheris, in a process of its own, which it ends; whether no case failed."""
    command = [sys.executable, "-m", coverage_guided.__name__, name, str(cases)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    facts = dict(re.findall(r"^stat::(\w+): +(\d+)", done.stderr, re.MULTILINE))
    if done.returncode or int(facts.get("number_of_executed_units", 0)) < cases:
        print(done.stderr, file=sys.stderr)
        return False
    print(
        f"{name}, by coverage: {facts['number_of_executed_units']} cases, "
        f"{facts['average_exec_per_sec']} a second, {facts['new_units_added']} of them new to the engine, "
        f"at most {facts['peak_rss_mb']} MiB",
        flush=True,
    )
    return True


def growth(samples: list[int]) -> float:
    """From the mean of the first quarter to that of the last."""
    quarter = (len(samples) + 3) // 4
    return mean(samples[-quarter:]) - mean(samples[:quarter])


def resident_bytes() -> int:
    """The memory of this process that is not swapped out; 0 on systems that do not tell it as a file."""
    try:
        pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * 4096


if __name__ == "__main__":
    sys.exit(main())
