"""The entry point of `bonsai-swift-worker`: a verified chat model behind standard input and output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO, Literal

from engine.artifact import Pin
from engine.catalogue import Conversation
from engine.chat import TEMPLATES
from engine.driver import values
from engine.driver.option_table import MAX_CONTEXT, OPTIONS, SIZE, Option, Parser
from engine.driver.pinned_model import pinned_model
from engine.driver.progress import ProgressBar
from engine.errors import InvalidInputError
from engine.kernels import KERNEL_NAMES, kernel_name
from engine.model import DEFAULT_ACTIVATION_BITS, DEFAULT_CONTEXT
from engine.swift import SwiftSession
from engine.workers import inbox
from engine.workers.process import EXIT_CODES, run_worker
from engine.workers.swift_worker import serve

PROGRAM = "bonsai-swift-worker"
DEFAULT_CATALOGUE = "Swift-Bonsai-2-PQ2_0"
MAX_SEED = 2**32 - 2  # the highest 32-bit number stands for a random seed in the sampler's original

Backend = Literal["auto", "scalar"]

DESCRIPTION = """\
Answer conversations with a verified chat model, one JSON request a line on standard input, JSON records a
line on standard output.

  bonsai-swift-worker --model /models/Swift-Bonsai-2-PQ2_0.gguf --seed 1
  bonsai-swift-worker --catalogue NAME --model PATH --seed 1
  bonsai-swift-worker --manifest MODEL.toml --seed 1

The first line out is a record of type "ready"; send nothing before it. Requests:

  {"op":"count","id":1,"messages":[{"role":"user","content":"Hello"}],"max_tokens":64}
  {"op":"complete","id":2,"messages":[...],"max_tokens":64,"timeout_seconds":60}
  {"op":"reset","id":3}

Text comes in records of type "delta", which are provisional until the request's "completion". The end of
standard input cancels a running answer and ends the worker.
"""

_MODEL = (
    Option("--model", values.path, "PATH", f"absolute path of the GGUF file of {DEFAULT_CATALOGUE}"),
    Option("--catalogue", str, "NAME", "or of this file; 'prism-inference identify --help' lists the names"),
    Option("--manifest", values.path, "FILE", "or a TOML file that pins any other chat model"),
)
_SETTINGS = (
    Option("--seed", values.integer(0, MAX_SEED), "N", f"seed of all draws, 0 to {MAX_SEED}; required"),
    Option(
        "--backend",
        values.choice("auto", "scalar"),
        "auto|scalar",
        "compute with the best instructions of this processor, or with none that it may lack: plain C, or "
        "NumPy in a build without a compiler; the answers are the same (default: auto)",
    ),
    Option("--row-workers", values.integer(1, 16), "N", "threads (default: one a processor)"),
    Option(
        "--context",
        values.integer(1, MAX_CONTEXT),
        "N",
        "longest conversation in tokens, answer included "
        f"(default: the catalogue's, or else the model's, at most {DEFAULT_CONTEXT})",
    ),
    *(option for option in OPTIONS["engine"] if option.flag == "--activation-bits"),
)
_BUDGETS = (
    Option("--memory-bytes", SIZE, "N", "the model (or else half of this machine's memory)"),
    Option("--state-bytes", SIZE, "N", "its state (or else 1 GiB)"),
    Option("--checkpoint-bytes", SIZE, "N", "checkpoints of the state (or else 1 GiB)"),
    Option(
        "--output-bytes",
        values.integer(1024, 64 << 20),
        "N",
        "the text of one answer (or else 4 MiB)",
    ),
)


@dataclass(frozen=True)
class WorkerOptions:
    """A valid command line; `kernel` is None for the best that there is."""

    pin: Pin
    conversation: Conversation
    seed: int
    kernel: str | None
    threads: int | None
    activation_bits: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker with the command line (of this process, if None) and return its exit code."""
    code = run_worker(PROGRAM, partial(_work, sys.argv[1:] if arguments is None else arguments))
    if inbox.is_reading():  # a thread that cannot be interrupted must not delay the end
        os._exit(code)
    return code


def parse_options(arguments: Sequence[str]) -> WorkerOptions:
    """Read and check a command line; `--help` prints and exits."""
    given = _parser().parse_strictly(arguments)
    if given.manifest is None and given.catalogue is None:
        if given.model is None:
            raise InvalidInputError("--model is needed, or --manifest", "model")
        given.catalogue = DEFAULT_CATALOGUE
    if given.seed is None:
        raise InvalidInputError("--seed is required", "seed")
    model = pinned_model(given)
    said = model.conversation
    if said.chat_template not in (None, *TEMPLATES):
        known = ", ".join(TEMPLATES)
        raise InvalidInputError(f"the manifest's chat template is none of {known}", "chat_template")
    return WorkerOptions(
        pin=model.pin,
        conversation=replace(
            said,
            context=given.context or said.context,
            model_bytes=given.memory_bytes or said.model_bytes,
            state_bytes=given.state_bytes or said.state_bytes,
            checkpoint_bytes=given.checkpoint_bytes or said.checkpoint_bytes,
            output_bytes=given.output_bytes or said.output_bytes,
        ),
        seed=given.seed,
        kernel=_kernel(given.backend or "auto"),
        threads=given.row_workers,
        activation_bits=int(given.activation_bits or DEFAULT_ACTIVATION_BITS),
    )


def _kernel(backend: Backend) -> str:
    if backend == "auto":
        return kernel_name()
    return "portable" if "portable" in KERNEL_NAMES else "numpy"


def _work(arguments: Sequence[str], source: BinaryIO, sink: BinaryIO) -> None:
    options = parse_options(arguments)
    with ProgressBar("verifying") as bar:
        session = SwiftSession.load(
            options.pin,
            options.conversation,
            options.seed,
            activation_bits=options.activation_bits,
            threads=options.threads,
            kernel=options.kernel,
            progress=bar,
        )
    serve(session, source, sink)


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(bytes=None, sha256=None)  # ways to name a model that this command does not have
    parser.add_options(
        {
            "model": _MODEL,
            "settings": _SETTINGS,
            "budgets in bytes (default: the catalogue's)": _BUDGETS,
        }
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
