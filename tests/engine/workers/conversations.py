"""Runs `bonsai-token-worker` for the tests, and recorded conversations with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from engine.artifact import Pin
from engine.tokenization import TextTokenizationPolicy, TokenBudget
from engine.workers.token_client import ExpectedWorker
from engine.workers.token_protocol import WorkerConfig
from tests.vocabularies import EOS

ROOT = Path(__file__).parents[3]
MODULE = "engine.workers.token_worker_main"

Worker = subprocess.Popen[bytes]

SIZE = EOS + 3
CONTEXT, RESERVED, FRAME_BYTES = 32, 8, 200
CONFIG = WorkerConfig(TextTokenizationPolicy("literal", "none", TokenBudget(CONTEXT, RESERVED)), FRAME_BYTES)
SETTINGS = {
    "--memory-bytes": "1000000",
    "--context": str(CONTEXT),
    "--reserved-output-tokens": str(RESERVED),
    "--special-input": "literal",
    "--insert-special": "none",
    "--max-frame-bytes": str(FRAME_BYTES),
}


def arguments_for(pin: Pin, **changes: str | None) -> list[str]:
    """A complete command line; a change is another value, or None to leave an option out."""
    options: dict[str, str | None] = {
        "--model": str(pin.path),
        "--bytes": str(pin.nbytes),
        "--sha256": pin.sha256,
        **SETTINGS,
        **{f"--{name.replace('_', '-')}": value for name, value in changes.items()},
    }
    return [word for flag, value in options.items() if value is not None for word in (flag, value)]


def expected_worker(pin: Pin, response_frame_bytes: int = 1000) -> ExpectedWorker:
    """What a client of that worker is told."""
    return ExpectedWorker(pin.sha256, SIZE, CONFIG, response_frame_bytes)


def ready_line(pin: Pin) -> dict[str, Any]:
    """The ready record of that worker, written down independently of the code."""
    return {
        "type": "ready",
        "protocol": "bonsai-token-worker-v1",
        "model_sha256": pin.sha256,
        "vocabulary_size": 271,
        "context": 32,
        "reserved_output_tokens": 8,
        "special_input": "literal",
        "insert_special": "none",
        "max_frame_bytes": 200,
    }


def environment() -> Mapping[str, str]:
    """The environment of a child that finds the source tree from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@contextmanager
def started(*arguments: str, folder: Path, **variables: str) -> Iterator[Worker]:
    """A worker in another folder, which does not outlive the test."""
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, *arguments],
        cwd=folder,
        env={**environment(), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as worker:
        assert worker.stdin is not None
        try:
            yield worker
        finally:
            worker.kill()
            with suppress(OSError):  # what was written for a worker that is gone
                worker.stdin.close()


def talk(pin: Pin, sent: bytes, folder: Path, **changes: str | None) -> tuple[int, list[Any], bytes]:
    """Exit code, records and standard error of a worker that gets all of `sent` and the end of its input."""
    with started(*arguments_for(pin, **changes), folder=folder) as worker:
        output, errors = worker.communicate(sent)
    assert output.endswith(b"\n") or not output
    return worker.returncode, [json.loads(line) for line in output.split(b"\n")[:-1]], errors
