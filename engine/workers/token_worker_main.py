"""The entry point of `bonsai-token-worker`: a verified model's tokenizer behind standard input and output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from engine.artifact import Pin
from engine.driver import values
from engine.driver.option_table import OPTIONS, SIZE, Option, Parser
from engine.driver.pinned_model import pinned_model
from engine.driver.progress import ProgressBar
from engine.errors import InvalidInputError
from engine.tokenization import (
    MAX_TOKENIZATION_CONTEXT,
    TextTokenizationPolicy,
    TokenBudget,
    TokenizationSession,
)
from engine.workers.frames import MAX_FRAME_BYTES
from engine.workers.process import EXIT_CODES, run_worker
from engine.workers.token_worker import serve

PROGRAM = "bonsai-token-worker"

DESCRIPTION = """\
Count and encode prompts for a verified GGUF model, one JSON request a line on standard input, one JSON
answer a line on standard output. No weights are loaded and nothing is computed.

Every setting below is required, exactly once. The first line out is a record of type "ready" with the
protocol, the model's SHA-256 and vocabulary and all settings; send nothing before it. Requests:

  {"id":1,"op":"count","text":"Draft a scene."}
  {"id":2,"op":"encode","text":"Draft a scene."}
  {"id":3,"op":"count_tokens","token_ids":[42,17]}
  {"id":4,"op":"encode_tokens","token_ids":[42,17]}

The end of standard input ends the worker.
"""

_MODEL = ("--manifest", "--catalogue", "--model", "--bytes", "--sha256")
_SETTINGS = (
    Option("--memory-bytes", SIZE, "N", "memory for the file's metadata while it is read"),
    Option(
        "--context",
        values.integer(1, MAX_TOKENIZATION_CONTEXT),
        "N",
        f"longest sequence in tokens, output included, at most {MAX_TOKENIZATION_CONTEXT}",
    ),
    Option(
        "--reserved-output-tokens",
        values.integer(0, MAX_TOKENIZATION_CONTEXT - 1),
        "N",
        "tokens of the context that no prompt may take, fewer than all",
    ),
    Option(
        "--special-input",
        values.choice("literal", "parse"),
        "literal|parse",
        "whether text may spell special tokens",
    ),
    Option(
        "--insert-special",
        values.choice("none", "model"),
        "none|model",
        "whether text gets the BOS and EOS that the model's flags ask for",
    ),
    Option(
        "--max-frame-bytes",
        values.integer(1, MAX_FRAME_BYTES),
        "N",
        f"longest request in bytes, without its LF, at most {MAX_FRAME_BYTES}",
    ),
)


@dataclass(frozen=True)
class WorkerOptions:
    """A valid command line."""

    pin: Pin
    memory_bytes: int
    policy: TextTokenizationPolicy
    max_frame_bytes: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the worker with the command line (of this process, if None) and return its exit code."""
    return run_worker(PROGRAM, partial(_work, sys.argv[1:] if arguments is None else arguments))


def parse_options(arguments: Sequence[str]) -> WorkerOptions:
    """Read and check a command line; `--help` prints and exits."""
    given = _parser().parse_strictly(arguments)
    pin = pinned_model(given).pin
    for option in _SETTINGS:
        if getattr(given, option.name) is None:
            raise InvalidInputError(f"{option.flag} is required", option.name)
    budget = TokenBudget(given.context, given.reserved_output_tokens)
    policy = TextTokenizationPolicy(given.special_input, given.insert_special, budget)
    return WorkerOptions(pin, given.memory_bytes, policy, given.max_frame_bytes)


def _work(arguments: Sequence[str], source: BinaryIO, sink: BinaryIO) -> None:
    options = parse_options(arguments)
    with ProgressBar("verifying") as bar:
        session = TokenizationSession.load(options.pin, options.memory_bytes, options.policy, bar)
    serve(session, options.max_frame_bytes, source, sink)


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    known = {option.flag: option for options in OPTIONS.values() for option in options}
    parser.add_options({"model": [known[flag] for flag in _MODEL], "settings": _SETTINGS})
    return parser


if __name__ == "__main__":
    sys.exit(main())
