from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.subject import add_subject_options, open_subject, token_ids
from engine.tensor_types import PQ2_0, Q1_0

WIDTH, ROWS = 256, 560


def subject_of(*arguments: str, folder: Path) -> argparse.Namespace:
    """Parsed options."""
    parser = argparse.ArgumentParser()
    add_subject_options(parser)
    return parser.parse_args([*arguments, "--folder", str(folder)])


def test_tied(folder: Path) -> None:
    """Of a tied model every tensor is read for each token, the embedding as output."""
    subject = open_subject(subject_of("--model", "tiny-qwen3", "--type", "Q1_0", folder=folder))
    matrices = 2 * (WIDTH * (512 + 256 + 256 + 512 + 512 + 512) + 512 * WIDTH) + ROWS * WIDTH
    norms = 4 * (2 * (2 * WIDTH + 2 * 128) + WIDTH)
    assert subject.weight_bytes == matrices // 128 * Q1_0.nbytes + norms
    assert (subject.type, subject.folded, subject.architecture) == ("Q1_0", False, "qwen3")


def test_untied(folder: Path) -> None:
    """Of an untied model the embedding is not read, but for a row."""
    subject = open_subject(subject_of("--model", "tiny-qwen35", "--type", "PQ2_0", folder=folder))
    embedding = ROWS * WIDTH // 128 * PQ2_0.nbytes
    unread = subject.manifest.pin.nbytes - subject.weight_bytes
    assert embedding < unread < embedding + 64_000  # the header besides
    assert subject.folded


def test_by_manifest(folder: Path) -> None:
    """A manifest names a model of one's own, and results call it by the manifest's name."""
    made = open_subject(subject_of("--model", "tiny-qwen3", "--type", "Q1_0", folder=folder))
    found = open_subject(subject_of("--manifest", str(made.path.with_suffix(".toml")), folder=folder))
    assert found.manifest.pin == made.manifest.pin
    assert (found.model, found.weight_bytes) == ("tiny-qwen3-Q1_0", made.weight_bytes)


@pytest.mark.parametrize("length", [1, 100])
def test_token_ids(folder: Path, length: int) -> None:
    """Tokens lie in the vocabulary and are the same for the same seed."""
    subject = open_subject(subject_of("--model", "tiny-qwen3", "--type", "Q1_0", folder=folder))
    ids = token_ids(subject, length)
    assert len(ids) == length
    assert all(0 <= token < ROWS for token in ids)
    assert ids == token_ids(subject, length)
