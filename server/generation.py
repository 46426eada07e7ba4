"""Runs one job in the engine's thread: tokens through the text pipeline into the job's events.

It decides when the text ends an answer (a stop string, the output limit) and counts what usage reports.
"""

from __future__ import annotations

import time
from typing import Any

from engine.capabilities import package_version
from engine.errors import EngineError
from engine.receipt import ComputedBy, ModelUsed
from engine.runtime import Completion
from engine.text_pipeline import Delta, TextPipeline
from engine.witness import Witness
from server.backend import Backend, ModelFacts
from server.errors import from_engine
from server.job import Finished, Job, Work


def perform(job: Job, backend: Backend, seconds: float, output_bytes: int) -> None:
    """Generate the job's answer within `seconds`, at most `output_bytes` of text; end the job."""
    output = _Output(job, backend, output_bytes)
    witness = Witness(job.work.sampler)
    job.start()
    try:
        completion = backend.generate(
            job.work.prompt,
            job.work.options,
            sampler=job.work.sampler if job.work.receipt is None else witness,
            cancellation=job.cancellation,
            deadline=time.monotonic() + seconds,
            on_token=output.on_token,
            on_prefill=output.on_prefill,
        )
    except EngineError as error:
        job.end(from_engine(error))
        return
    output.flush()
    job.end(
        Finished(
            finish="length" if output.full else completion.finish,
            prompt_tokens=completion.prompt_tokens,
            cached_tokens=completion.reused_tokens,
            completion_tokens=len(completion.tokens),
            reasoning_tokens=output.reasoning_tokens,
            prefill_seconds=completion.prefill_seconds,
            decode_seconds=completion.decode_seconds,
            receipt=_receipt(job.work, backend.facts, witness, completion),
        )
    )


def _receipt(
    work: Work, facts: ModelFacts, witness: Witness, completion: Completion
) -> dict[str, Any] | None:
    if work.receipt is None:
        return None
    model = ModelUsed(facts.sha256, facts.nbytes, facts.contract, facts.context)
    used = ComputedBy(package_version(), facts.kernel, facts.threads)
    return witness.receipt(model, used, work.receipt, work.prompt, work.options, completion).document()


class _Output:
    """The text of one answer as it grows."""

    def __init__(self, job: Job, backend: Backend, limit: int) -> None:
        self.full = False
        self.reasoning_tokens = 0
        self._job = job
        self._backend = backend
        self._left = limit
        self._undecided = 0  # tokens whose text is still held back
        self._pipeline = TextPipeline(job.work.stops, job.work.reasoning)

    def on_prefill(self, done: int, total: int) -> None:
        self._job.progress = (done, total)

    def on_token(self, token: int) -> bool:
        """Take one token; True ends the answer here."""
        self._job.phase = "decode"
        self._undecided += 1
        self._post(self._pipeline.push(self._backend.shown(token)))
        return self._pipeline.stopped or self.full

    def flush(self) -> None:
        """Release what was held back."""
        self._post(self._pipeline.finish())

    def _post(self, deltas: list[Delta]) -> None:
        if deltas:
            self.reasoning_tokens += self._undecided if deltas[0].kind == "reasoning" else 0
            self._undecided = 0
        for delta in deltas:
            size = len(delta.text.encode("utf-8"))
            self.full = self.full or size > self._left
            if not self.full:
                self._left -= size
                self._job.post(delta)
