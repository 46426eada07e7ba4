from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.errors import BenchmarkError
from benchmarks.served import running_server
from benchmarks.subject import EngineOptions, add_subject_options, open_subject
from engine.kernels import KERNEL_NAMES

MODEL = ["--model", "tiny-qwen35", "--type", "PQ2_0"]


def test_first_token(folder: Path, tmp_path: Path) -> None:
    """Through the real server, a next question finds its prefix cached and a new one does not."""
    saved = tmp_path / "results.jsonl"
    arguments = ["--words", "30", "--max-tokens", "6", "--rounds", "1", "--save", str(saved)]
    assert main(["first-token", *MODEL, "--folder", str(folder), *arguments]) == 0
    questions = json.loads(saved.read_text("utf-8"))["values"]["questions"]
    cold, cached = questions["30 words, cold"], questions["30 words, next question"]
    assert cold["cached_tokens"] < 20 < cold["prompt_tokens"]
    assert cached["cached_tokens"] > 0.8 * cold["prompt_tokens"]
    assert 0 < cold["first_token_seconds"] < 60
    assert cold["gap_seconds_p50"] <= cold["gap_seconds_p99"]


def test_server_that_does_not_start(folder: Path) -> None:
    """If the server ends before it is ready, its own last lines are the error."""
    parser = argparse.ArgumentParser()
    add_subject_options(parser)
    subject = open_subject(parser.parse_args([*MODEL, "--folder", str(folder)]))
    with (
        pytest.raises(BenchmarkError, match=r"the server ended(.|\n)*context 99999 is not"),
        running_server(subject, EngineOptions(1, KERNEL_NAMES[-1], 16), 99_999),
    ):
        pass
