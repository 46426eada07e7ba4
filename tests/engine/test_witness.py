from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from engine.errors import CancelledError
from engine.receipt import EXACT_IDS, ComputedBy, ModelUsed
from engine.runtime import GenerationOptions
from engine.sampling import GreedySampler, ReferenceSampler
from engine.witness import StepDigests, Witness, digest_of
from tests.runtimes import PROMPT, Countdown, answer, decoder_of, fresh

OPTIONS = GenerationOptions(6, (), prefill_block=4)


def sha256(*parts: bytes) -> str:
    """The digest of all parts, one after the other."""
    return hashlib.sha256(b"".join(parts)).hexdigest()


def test_digests_of_ids() -> None:
    """Ids are hashed as little-endian 32-bit numbers; of no ids it is the empty digest."""
    assert digest_of([1, 2**32 - 1]) == sha256(b"\1\0\0\0", b"\xff\xff\xff\xff")
    assert digest_of([]) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_step_digests() -> None:
    """Every step has eight digits of the digest of prompt and output up to there."""
    steps = StepDigests([7, 8])
    assert [steps.step(token) for token in (9, 10)] == [
        sha256(struct.pack("<3I", 7, 8, 9))[:8],
        sha256(struct.pack("<4I", 7, 8, 9, 10))[:8],
    ]


def test_a_witness_changes_nothing() -> None:
    """The same tokens come out with and without it, and its copies draw as the sampler's do."""
    sampler, logits = ReferenceSampler(3, 1.0, 0, 1.0), np.linspace(-1, 1, 50, dtype=np.float32)
    witness = Witness(sampler.clone())
    saved = witness.clone()
    alone = [sampler.sample(logits) for _ in range(5)]
    assert [witness.sample(logits) for _ in range(5)] == alone
    witness.restore(saved)
    assert [witness.sample(logits) for _ in range(5)] == alone
    assert [saved.sample(logits) for _ in range(5)] == alone
    assert witness.describe() == sampler.describe()


def test_the_last_logits_are_kept() -> None:
    """The digest is of the logits that were sampled from last, even if the array is used again."""
    witness = Witness(GreedySampler())
    logits = np.array([1.0, -np.inf, 3.0], np.float32)
    witness.sample(np.zeros(3, np.float32))
    witness.sample(logits)
    logits[:] = 0
    assert witness.logits_sha256 == sha256(struct.pack("<3f", 1.0, -np.inf, 3.0))


def test_a_failed_run_is_forgotten() -> None:
    """After a cancelled request the witness is where it was, as the sampler is."""
    runtime = fresh(decoder_of("qwen35"))
    witness = Witness(ReferenceSampler(1))
    first = runtime.generate_sampled(PROMPT, OPTIONS, witness)
    before = witness.logits_sha256
    with pytest.raises(CancelledError):
        runtime.generate_sampled(first.tokens, OPTIONS, witness, cancellation=Countdown(15))
    assert witness.logits_sha256 == before


def test_the_receipt_is_of_the_run() -> None:
    """All parts are those of the completion that the runtime gave, the last logits those that it computed."""
    runtime = fresh(decoder_of("qwen35"))
    witness = Witness(GreedySampler())
    completion = runtime.generate_sampled(PROMPT, OPTIONS, witness)
    model, by = ModelUsed("ab" * 32, 5, "qwen35:canon-2/16", 40), ComputedBy("1", "numpy", 1)
    receipt = witness.receipt(model, by, EXACT_IDS, PROMPT, OPTIONS, completion)
    _, logits = answer(fresh(decoder_of("qwen35")), options=OPTIONS)
    assert (receipt.model, receipt.computed_by) == (model, by)
    assert (receipt.prompt.tokens, receipt.prompt.sha256) == (9, sha256(struct.pack("<9I", *PROMPT)))
    assert (receipt.settings.max_tokens, receipt.settings.sampling) == (6, {"mode": "greedy"})
    assert (receipt.output.finish, receipt.output.stop_token, receipt.output.tokens) == ("length", None, 6)
    assert receipt.output.sha256 == sha256(struct.pack("<6I", *completion.tokens))
    assert receipt.output.steps[-8:] == sha256(struct.pack("<15I", *PROMPT, *completion.tokens))[:8]
    assert receipt.output.logits_sha256 == sha256(logits[-1])
