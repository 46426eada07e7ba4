"""Seconds to load a model, against those to hash the same file, and the memory at its peak."""

from __future__ import annotations

import argparse
import gc
import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import peak_memory_bytes
from benchmarks.other_load import OtherLoad
from benchmarks.results import add_result_options, finish, new_result
from benchmarks.subject import add_engine_options, add_subject_options, count, engine_options, open_subject
from benchmarks.targets import LOAD_RATIO, Target
from engine.model import DEFAULT_CONTEXT

DESCRIPTION = """\
Load: read, verify and prepare a model, with the file in the system's cache.

Every round hashes the file with sha256sum (where there is such a tool) and with Python's hashlib, and then
loads it from scratch. Printed are medians over the rounds, and the ratios: hashing is what loading cannot do
without, so it is the yardstick. Processors that hash in hardware make hashlib, which the engine uses too,
several times as fast as a plain sha256sum.

  python -m benchmarks load --model 1.7b --type PQ2_0
  python -m benchmarks load --model 27b --type PQ2_0 --rounds 3
"""
TOOL, LIBRARY = "sha256sum", "hashlib"
CHUNK_BYTES = 4 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)
    add_engine_options(parser)
    parser.add_argument(
        "--context", type=count, help=f"longest sequence in tokens (the model's, at most {DEFAULT_CONTEXT})"
    )
    parser.add_argument("--rounds", type=count, default=5, help="rounds to take medians of (5)")
    add_result_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    subject, engine = open_subject(options), engine_options(options)
    yardsticks: dict[str, Callable[[], object]] = {LIBRARY: partial(_hash_here, subject.path)}
    if tool := shutil.which(TOOL):
        command = [tool, str(subject.path)]
        yardsticks[TOOL] = partial(subprocess.run, command, check=True, capture_output=True)
    _hash_here(subject.path)  # brings the file into the system's cache
    seconds: dict[str, list[float]] = {}
    peak = None
    load = OtherLoad()
    for _ in range(options.rounds):
        for name, yardstick in yardsticks.items():
            seconds.setdefault(name, []).append(_seconds(yardstick))
        seconds.setdefault("load", []).append(_seconds(partial(engine.load, subject, options.context)))
        peak = peak or peak_memory_bytes()  # of one load: later ones may overlap with what is freed
        gc.collect()
    values: dict[str, Any] = {f"{name}_seconds": median(times) for name, times in seconds.items()}
    values |= {f"{name}_ratio": median(seconds["load"]) / median(seconds[name]) for name in yardsticks}
    values["peak_bytes"] = peak
    lines = [
        (name, f"{median(times):.3f} s (rounds: {' '.join(f'{value:.3f}' for value in times)})")
        for name, times in seconds.items()
    ]
    lines += [("ratio", f"{values[f'{name}_ratio']:.2f} times {name}") for name in yardsticks]
    if peak is not None:
        above = (peak - subject.manifest.pin.nbytes) / 1e6
        lines.append(("memory", f"{peak / 1e6:.0f} MB at the peak, {above:.0f} MB more than the file"))
    measured = TOOL if TOOL in yardsticks else LIBRARY
    target = Target(f"load to {measured}", LOAD_RATIO, values[f"{measured}_ratio"], at_most=True)
    settings = {"context": options.context, "rounds": options.rounds}
    conditions = {"other_processors": load.processors()}
    result = new_result("load", subject, engine, settings, values, conditions)
    finish(result, lines, [target], options.save)


def _seconds(task: Callable[[], object]) -> float:
    started = time.perf_counter()
    result = task()
    seconds = time.perf_counter() - started
    del result  # giving a model's memory back is no part of loading it
    return seconds


def _hash_here(path: Path) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while read := file.readinto(buffer):
            digest.update(buffer[:read])
    return digest.hexdigest()
