"""Held-out texts are as likely on the engine as PyTorch finds them: the comparison, as a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.decoder import Step
from engine.manifest import read_manifest
from training.evaluate import Examinee
from training.golden import Reference, held_out_texts
from training.tokens import Encoder


def print_likelihoods(manifest: Path) -> None:
    """Mean negative log-likelihood of each held-out text: PyTorch, and the engine at 16 and 8 bits."""
    examinees = [Examinee(manifest, bits) for bits in (16, 8)]
    tokenizer = examinees[0].model.tokenizer
    reference = Reference(read_manifest(manifest).pin.path, tokenizer)
    print("\n| tokens | PyTorch | engine, 16 bits | engine, 8 bits |\n|---|---|---|---|")
    for ids in held_out_texts(Encoder(tokenizer)):
        expected = reference.mean_nll(ids)
        found = [mean_nll(examinee, ids) for examinee in examinees]
        cells = [f"{value:.6f} ({100 * (value / expected - 1):+.3f} %)" for value in found]
        print(f"| {len(ids)} | {expected:.6f} | {cells[0]} | {cells[1]} |")


def mean_nll(examinee: Examinee, ids: list[int]) -> float:
    """Mean negative log-likelihood on the engine of each id but the first."""
    decoder = examinee.model.decoder
    logits = decoder.evaluate([Step(decoder.new_state(), ids[:-1], "all")])[0].astype(np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    likelihoods = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -float(np.mean(likelihoods[np.arange(len(ids) - 1), ids[1:]]))
