from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.__main__ import main
from benchmarks.errors import BenchmarkError
from benchmarks.report import BEGIN, END, newest, with_measured
from benchmarks.results import Result, read_results
from benchmarks.tables import document

SVG = "{http://www.w3.org/2000/svg}"
DECODE = Result(
    benchmark="decode",
    subject={
        "model": "1.7b",
        "type": "Q1_0",
        "folded": False,
        "architecture": "qwen3",
        "file_bytes": 246_000_000,
        "weight_bytes": 242_000_000,
    },
    engine={"threads": 2, "kernel": "avx2", "bits": 16},
    settings={"steps": 32, "context_fill": 4, "rounds": 3},
    values={"tokens_per_second": 62.0, "bytes_per_second": 15.0e9, "share": 0.5, "rounds": [61, 62, 63]},
    conditions={"read_bytes_per_second": 30.0e9, "reads": {}, "other_processors": 0.0},
    peer={
        "name": "xllamacpp",
        "version": "1",
        "system": "",
        "tokens_per_second": 20.0,
        "share": 0.16,
        "ratio": 3.1,
        "rounds": [],
    },
)
PREFILL = replace(
    DECODE,
    benchmark="prefill",
    settings={"tokens": 512, "block": 256, "rounds": 3},
    values={"tokens_per_second": 205.0, "rounds": []},
    peer=None,
)
LOAD = replace(
    DECODE,
    benchmark="load",
    values={
        "load_seconds": 1.0,
        "sha256sum_seconds": 0.8,
        "sha256sum_ratio": 1.25,
        "hashlib_seconds": 0.25,
        "hashlib_ratio": 4.0,
        "peak_bytes": 346_000_000,
    },
    peer=None,
)


def save(path: Path, *results: Result) -> Path:
    """A results file."""
    path.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results), "utf-8")
    return path


def test_tables() -> None:
    """Each shape has a table of its speeds, and figures are in the units of its head."""
    text = document([DECODE, PREFILL, LOAD])
    assert "#### Speed of 1.7b" in text
    assert (
        "| decode after 4 tokens | Q1_0 | avx2 | 2 | 16 | 62.0 | 15.0 | 50% | xllamacpp | 20.0 | 16% | 3.1 |"
        in text
    )
    assert (
        "| prefill of 512 in blocks of 256 | Q1_0 | avx2 | 2 | 16 | 205.0 | – | – | – | – | – | – |" in text
    )
    assert "| 1.7b | Q1_0 | avx2 | 2 | 16 | 246 | 1.00 | 0.80 | 1.25 | 0.25 | 4.00 | 100 |" in text
    assert "busy meanwhile" not in text


def test_busy_machine_shows() -> None:
    """Tables say so if others used the machine."""
    conditions = {**DECODE.conditions, "other_processors": 1.26}
    assert "kept up to 1.3 processors busy" in document([replace(DECODE, conditions=conditions)])


def test_newest() -> None:
    """A later result takes the place of an earlier one that differs only in how often it was measured."""
    again = replace(DECODE, settings={**DECODE.settings, "rounds": 9}, values={"tokens_per_second": 1.0})
    longer = replace(DECODE, settings={**DECODE.settings, "context_fill": 4096})
    assert newest([DECODE, longer, again]) == [again, longer]


def test_document(tmp_path: Path) -> None:
    """The report keeps the rest of a document, and writing it again changes nothing."""
    results = save(tmp_path / "results.jsonl", DECODE, PREFILL, LOAD)
    (tmp_path / "docs").mkdir()
    page, picture = tmp_path / "docs" / "page.md", tmp_path / "docs" / "chart.svg"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe end.\n", "utf-8")
    arguments = ["report", str(results), "--document", str(page), "--chart", str(picture)]
    assert main(arguments) == 0
    text = page.read_text("utf-8")
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n![Share of the read bandwidth](chart.svg)\n")
    assert text.endswith(f"\n\n{END}\nThe end.\n")
    assert "old" not in text
    assert main(arguments) == 0
    assert page.read_text("utf-8") == text


def test_chart(tmp_path: Path) -> None:
    """The chart is SVG with a bar for each kernel and for the peer, as long as their shares."""
    results = save(tmp_path / "results.jsonl", DECODE, PREFILL)
    picture = tmp_path / "chart.svg"
    main(["report", str(results), "--document", str(tmp_path / "page.md"), "--chart", str(picture)])
    root = ElementTree.fromstring(picture.read_text("utf-8"))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"1.7b Q1_0", "avx2, 2 threads, 16 bits", "50%", "xllamacpp, 2 threads", "16%"} <= set(texts)
    widths = [float(element.get("width", "")) for element in root.iter(f"{SVG}rect")][1:]
    assert widths[1] / widths[0] == pytest.approx(0.16 / 0.5, abs=0.01)


def test_one_mark() -> None:
    """A document with half of the marks is left alone."""
    with pytest.raises(BenchmarkError, match="only one of the two marks"):
        with_measured(f"text {BEGIN}", "body")


def test_damaged_results(tmp_path: Path) -> None:
    """A line that is no result, or has a field too many, is refused by its number."""
    path = save(tmp_path / "results.jsonl", DECODE)
    for line in ("{", json.dumps({**asdict(DECODE), "colour": 1})):
        path.write_text(json.dumps(asdict(DECODE)) + "\n" + line + "\n", "utf-8")
        with pytest.raises(BenchmarkError, match=r"line 2 of .* is not a result"):
            read_results(path)
