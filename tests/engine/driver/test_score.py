from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.driver.commands import Run, pinned
from tests.models import DATA, golden_ids, golden_logits, model_path, relative_rmse

TRAINED = model_path("trained-qwen35-pq2_0-had")
HELD_OUT: list[dict[str, Any]] = json.loads((DATA / "trained-qwen35.json").read_text("utf-8"))["held_out"]


def test_golden_likelihood(run: Run, tmp_path: Path) -> None:
    """The likelihood of a held-out sequence is the training framework's, within 0.1 % at 16 bits."""
    case = HELD_OUT[0]
    numbers = tmp_path / "ids.json"
    numbers.write_text(json.dumps(case["ids"]))
    result = run(
        *("--mode", "score", *pinned(TRAINED), "--memory-bytes", "500000000", "--context", "512"),
        *("--tokens-file", numbers, "--activation-bits", "16"),
    )
    assert (result.code, result.err) == (0, "")
    *positions, summary = result.records
    assert summary["mean_negative_log_likelihood"] == pytest.approx(case["mean_nll"], rel=1e-3)
    assert summary["perplexity"] == pytest.approx(math.exp(case["mean_nll"]), rel=1e-3)
    assert (summary["type"], summary["positions"], summary["scored"]) == ("score", 257, 256)
    assert [record["token"] for record in positions] == case["ids"]
    assert [record["next"] for record in positions] == [*case["ids"][1:], None]
    found = [record["log_probability"] for record in positions[:-1]]
    assert -sum(found) / 256 == pytest.approx(summary["mean_negative_log_likelihood"])


def test_golden_logits(run: Run, tmp_path: Path) -> None:
    """Saved logits are another engine's within the tolerance of 16-bit activations."""
    expected = golden_logits()["tiny-qwen3-pq2_0-had__exact"]
    saved = tmp_path / "out.npy"
    tokens = ",".join(map(str, golden_ids()))
    base = ["--mode", "score", *pinned(model_path("tiny-qwen3-pq2_0-had")), "--tokens", tokens]
    result = run(*base, "--save-logits", saved, "--prefill-block-tokens", "7")
    logits = np.load(saved)
    assert (logits.shape, logits.dtype) == ((48, 1024), np.float32)
    assert relative_rmse(logits, expected) < 0.0005
    *positions, summary = result.records
    assert summary["saved_logits"] == {"dtype": "float32", "shape": [48, 1024]}
    wide = logits.astype(np.float64)
    log_probabilities = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    for record, row in zip(positions, log_probabilities, strict=True):
        best = [item["token"] for item in record["best"]]
        assert best == np.argsort(-row, kind="stable")[:5].tolist()
        assert record["best"][0]["log_probability"] == pytest.approx(row[best[0]])
        if record["next"] is not None:
            assert record["log_probability"] == pytest.approx(row[record["next"]])
    again = tmp_path / "again.npy"
    assert run(*base, "--save-logits", again, "--threads", "2").code == 0
    assert again.read_bytes() == saved.read_bytes()


def test_one_token(run: Run) -> None:
    """A single id has no likelihood, but its logits are told."""
    position, summary = run("--mode", "score", *pinned(TRAINED), "--tokens", "5").records
    assert (position["next"], position["log_probability"], len(position["best"])) == (None, None, 5)
    assert (summary["scored"], summary["perplexity"], summary["mean_negative_log_likelihood"]) == (
        0,
        None,
        None,
    )


def test_text_can_be_scored(run: Run) -> None:
    """Text goes through the same policies as in the other modes."""
    summary = run("--mode", "score", *pinned(TRAINED), "--prompt", "The capital of France is").records[-1]
    assert summary["input_mode"] == "text"
    assert summary["scored"] > 2


def test_relative_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this mode, ids and logits may lie in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("ids.json").write_text("[1, 2, 3]")
    command = ["--mode", "score", *pinned(TRAINED), "--tokens-file", "ids.json", "--save-logits", "out.npy"]
    assert run(*command).code == 0
    assert np.load("out.npy").shape == (3, 1024)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.json", "out.npy"]


def test_failures_leave_no_file(run: Run, tmp_path: Path) -> None:
    """Logits appear whole or not at all; an older file stays as it was."""
    saved = tmp_path / "out.npy"
    saved.write_bytes(b"older")
    base = ["--mode", "score", *pinned(TRAINED), "--save-logits"]
    assert run(*base, saved, "--tokens", "1,2,3", "--context", "2").code == 2
    assert run(*base, saved, "--tokens", "1,9999").code == 2
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out.npy", b"older")]
    result = run(*base, tmp_path / "no" / "folder.npy", "--tokens", "1,2")
    assert result.code == 2
    assert result.error.startswith("--save-logits: No such file")


def test_too_many_ids(run: Run, tmp_path: Path) -> None:
    """More ids than the context are refused before anything is written."""
    numbers = tmp_path / "ids.json"
    numbers.write_text(json.dumps([1] * 2049))
    result = run("--mode", "score", *pinned(TRAINED), "--tokens-file", numbers)
    assert (result.code, result.out) == (2, b"")
    assert "maximum context length is 2048" in result.error
