"""The result of a measurement: printed, appended to a file as a line of JSON, and read back for tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError
from benchmarks.machine import machine_facts
from benchmarks.subject import EngineOptions, Subject
from benchmarks.targets import Target

QUIET_PROCESSORS = 0.1  # what others may use before a result is said to mean little


@dataclass(frozen=True)
class Result:
    """One measurement. `settings` say what was asked for, `values` what was found, in SI units."""

    benchmark: str
    subject: dict[str, Any]
    engine: dict[str, Any]
    settings: dict[str, Any]
    values: dict[str, Any]
    conditions: dict[str, Any]  # of the machine during the measurement
    peer: dict[str, Any] | None = None
    machine: dict[str, Any] = field(default_factory=machine_facts)
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def new_result(
    benchmark: str,
    subject: Subject,
    engine: EngineOptions,
    settings: dict[str, Any],
    values: dict[str, Any],
    conditions: dict[str, Any],
    peer: dict[str, Any] | None = None,
) -> Result:
    """A result of now, on this machine."""
    return Result(benchmark, subject.record(), asdict(engine), settings, values, conditions, peer)


def add_result_options(parser: argparse.ArgumentParser) -> None:
    """The option that keeps results."""
    parser.add_argument_group("result").add_argument(
        "--save", type=Path, metavar="FILE", help="append the result to this file as one line of JSON"
    )


def finish(
    result: Result, lines: Iterable[tuple[str, str]], targets: Iterable[Target], save: Path | None
) -> None:
    """Print a result, its conditions and its targets, and keep it if asked to."""
    rows = [
        (result.benchmark, _subject_line(result)),
        ("machine", machine_line(result.machine)),
        *_quiet_lines(result),
        ("engine", engine_line(result.engine)),
        *lines,
        *(("target", str(target)) for target in targets),
    ]
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        print(f"{label:{width}}  {text}", flush=True)
    if save is not None:
        with save.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def read_results(path: Path) -> list[Result]:
    """All results of a file, oldest first; raises BenchmarkError for a line that is none."""
    results = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise BenchmarkError(f"cannot read {path}: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        try:
            results.append(Result(**json.loads(line)))
        except (ValueError, TypeError):
            raise BenchmarkError(f"line {number} of {path} is not a result") from None
    return results


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in a few words."""
    memory = machine["memory_bytes"] / 2**30
    features = f" ({', '.join(machine['features'])})" if machine["features"] else ""
    return (
        f"{machine['cpu']}{features}, {machine['processors']} processors, {memory:.1f} GiB, "
        f"{machine['system']}, Python {machine['python']}, NumPy {machine['numpy']}"
    )


def engine_line(engine: dict[str, Any]) -> str:
    """How the engine computed."""
    return f"kernel {engine['kernel']}, {engine['threads']} threads, {engine['bits']}-bit activations"


def _subject_line(result: Result) -> str:
    subject = result.subject
    folded = " folded" if subject["folded"] else ""
    return (
        f"{subject['model']} {subject['type']}{folded} ({subject['architecture']}), file of "
        f"{subject['file_bytes'] / 1e6:.1f} MB, {subject['weight_bytes'] / 1e6:.1f} MB of weights a token"
    )


def _quiet_lines(result: Result) -> list[tuple[str, str]]:
    if "other_processors" not in result.conditions:  # what was measured does not depend on it
        return []
    others = result.conditions["other_processors"]
    if others is None:
        return [("quiet", "what other processes used is not known on this system")]
    verdict = "" if others < QUIET_PROCESSORS else ": NOT QUIET, the figures mean little"
    processors = result.machine["processors"]
    return [("quiet", f"other processes kept {others:.2f} of {processors} processors busy{verdict}")]
