"""Turns saved results into the tables of a document and a chart beside it."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.chart import Bar, Group, chart
from benchmarks.errors import BenchmarkError
from benchmarks.results import Result, machine_line, read_results
from benchmarks.tables import document, subject_name

DESCRIPTION = """\
Report: write the results that other commands saved with --save into a Markdown document, as tables, and draw
a chart of the share of the memory's speed that decoding reached, by type and kernel, beside the peer.

The tables replace what stands between two marks in the document; without the marks they are appended with
them. Of results with the same model, engine and settings the newest counts.

  python -m benchmarks report results.jsonl --document docs/performance.md --chart docs/bandwidth.svg
"""
BEGIN = "<!-- measured: written by python -m benchmarks report -->"
END = "<!-- end of measured -->"
INCIDENTAL = ("rounds", "steps", "blocks")  # settings that do not change what is measured
SHORT_CONTEXT = 64  # the chart shows decoding behind no more tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("results", type=Path, help="file that results were saved to")
    parser.add_argument(
        "--document", type=Path, default=Path("docs/performance.md"), help="(docs/performance.md)"
    )
    parser.add_argument("--chart", type=Path, default=Path("docs/bandwidth.svg"), help="(docs/bandwidth.svg)")


def run(options: argparse.Namespace) -> None:
    """Write both."""
    results = newest(read_results(options.results))
    if not results:
        raise BenchmarkError(f"{options.results} holds no results")
    options.chart.write_text(bandwidth_chart(results), "utf-8")
    link = Path(os.path.relpath(options.chart, options.document.parent)).as_posix()
    body = f"![Share of the read bandwidth]({link})\n\n{document(results)}"
    old = options.document.read_text("utf-8") if options.document.exists() else ""
    options.document.write_text(with_measured(old, body), "utf-8")
    print(f"wrote {options.document} and {options.chart} from {len(results)} results")


def newest(results: Sequence[Result]) -> list[Result]:
    """The newest result of each measurement, in the order in which they were first made."""
    chosen: dict[str, Result] = {}
    for result in results:
        settings = {name: value for name, value in result.settings.items() if name not in INCIDENTAL}
        peer = result.peer["name"] if result.peer is not None else None
        machine = machine_line(result.machine)
        parts = [result.benchmark, result.subject, result.engine, settings, peer, machine]
        chosen[json.dumps(parts, sort_keys=True)] = result
    return list(chosen.values())


def with_measured(text: str, body: str) -> str:
    """The document with `body` between the marks."""
    if (BEGIN in text) != (END in text):
        raise BenchmarkError("the document has only one of the two marks; restore the other or remove it")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before.rstrip()}\n\n{BEGIN}\n\n{body}\n\n{END}\n{after.lstrip(chr(10))}".lstrip()


def bandwidth_chart(results: Sequence[Result]) -> str:
    """The shares that decoding behind a short context reached."""
    decodes = [
        result
        for result in results
        if result.benchmark == "decode" and result.settings["context_fill"] <= SHORT_CONTEXT
    ]
    groups: dict[str, dict[str, Bar]] = {}
    for result in decodes:
        engine, peer = result.engine, result.peer
        bars = groups.setdefault(f"{result.subject['model']} {subject_name(result)}", {})
        threads = f"{engine['threads']} threads"
        if peer is not None:
            name = f"{peer['name']}, {threads}"
            bars[name] = Bar(name, peer["share"], "peer")
        name = f"{engine['kernel']}, {threads}, {engine['bits']} bits"
        bars[name] = Bar(name, result.values["share"], "ours")
    return chart(
        "Decode: share of the read bandwidth",
        "weights read a second, against a plain read by as many threads in the same run",
        [Group(title, _sorted(bars.values())) for title, bars in groups.items()],
    )


def _sorted(bars: Iterable[Bar]) -> tuple[Bar, ...]:
    """Ours first, the longest before the others; then the peers."""
    return tuple(sorted(bars, key=lambda bar: (bar.whose != "ours", -bar.share)))
