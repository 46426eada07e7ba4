"""`replay RECEIPT`: runs again what a receipt recorded, and says whether tokens and last logits agree.

Model, arithmetic, settings and policies are the receipt's; the prompt must be the one that it was made
with. Kernel, threads and blocks may be others: they do not change the result. Another seed may be given, to
see where the answers part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.comparison import Comparison, Difference
from engine.driver.command_line import print_help, read_words
from engine.driver.exit_codes import ExitCode
from engine.driver.generate import run
from engine.driver.inputs import read_input
from engine.driver.loading import describe_model, load
from engine.driver.option_table import OPTIONS, SCORE_BLOCK_TOKENS, Parser
from engine.driver.options import Options, read_source
from engine.driver.output import write_record
from engine.driver.pinned_model import pinned_model
from engine.errors import HashMismatchError, InvalidInputError
from engine.kernels import kernel_name
from engine.model import CONTRACT, Model
from engine.receipt import Receipt, read_receipt
from engine.runtime import GenerationOptions, Runtime
from engine.sampler_settings import sampler_from
from engine.witness import Witness, digest_of

TAKEN = {
    *("demo", "manifest", "model", "catalogue", "bytes", "sha256", "memory_bytes"),
    *("prompt", "prompt_file", "tokens", "tokens_file"),
    *("timeout_seconds", "prefill_block_tokens", "seed", "kernel", "threads"),
}
GROUPS = {
    title: taken
    for title, options in OPTIONS.items()
    if (taken := tuple(option for option in options if option.name in TAKEN))
}


def replay(arguments: Sequence[str]) -> ExitCode:
    """Run the command; the record says what was found, and so does the code."""
    given, words = read_words(arguments, GROUPS, _help)
    if len(words) != 1:
        raise InvalidInputError(f"exactly one receipt is needed, but {len(words)} are given", "receipt")
    receipt = read_receipt(Path(words[0]))
    options = _options(given, receipt)
    prompt = read_input(options)
    if isinstance(prompt.content, tuple):
        _check_prompt(receipt, prompt.content)
    started = time.monotonic()
    model = load(options)
    if model.identity.contract != receipt.model.contract:
        raise _other_contract(receipt)
    tokens = prompt.encode(model.tokenizer, model.chat)
    _check_prompt(receipt, tokens)
    loaded = time.monotonic()
    comparison = Comparison(receipt, tokens)
    difference = _compare(options, model, tokens, comparison)
    timings = {"load_seconds": loaded - started, "replay_seconds": time.monotonic() - loaded}
    record = _record(receipt, options, comparison, difference)
    write_record({**record, "model": describe_model(model), "timings": timings})
    return ExitCode.SUCCESS if difference is None else ExitCode.DIFFERS


def _compare(
    options: Options, model: Model, tokens: Sequence[int], comparison: Comparison
) -> Difference | None:
    sampler = sampler_from(
        options.sampler.describe(), prompt=tokens, vocabulary_size=model.decoder.vocabulary_size
    )
    witness = Witness(sampler)
    runtime = Runtime(
        model.decoder,
        checkpoint_bytes=model.decoder.checkpoint_bytes,
        masked=sorted(model.tokenizer.vocabulary.unused),
    )
    request = GenerationOptions(options.max_tokens, options.stop_tokens, options.prefill_block_tokens)
    completion = run(runtime, tokens, request, options.timeout_seconds, witness, comparison.on_token)
    return comparison.difference(completion, witness)


def _record(
    receipt: Receipt, options: Options, comparison: Comparison, difference: Difference | None
) -> dict[str, Any]:
    return {
        "type": "replay",
        "agrees": difference is None,
        "differs_in": None if difference is None else difference.part,
        "first_difference": None if difference is None else difference.index,
        "token": comparison.token,
        "agreeing_tokens": comparison.agreeing,
        "output_tokens": receipt.output.tokens,
        "sampling": options.sampler.describe(),
        "receipt": {"sampling": receipt.settings.sampling, "computed_by": asdict(receipt.computed_by)},
    }


def _options(given: argparse.Namespace, receipt: Receipt) -> Options:
    """The command line of the run that the receipt records, as far as it matters."""
    policies = receipt.prompt
    arithmetic = receipt.model.contract.partition(":")[2]
    bits = {f"{CONTRACT}/{bits}": bits for bits in (8, 16)}.get(arithmetic)
    if bits is None:
        raise _other_contract(receipt)
    pin = pinned_model(given).pin
    if (pin.sha256, pin.nbytes) != (receipt.model.sha256, receipt.model.bytes):
        raise HashMismatchError(
            f"the receipt is of the model with SHA-256 {receipt.model.sha256}, not {pin.sha256}"
        )
    return Options(
        mode="generate",
        pin=pin,
        memory_bytes=given.memory_bytes,
        context=receipt.model.context,
        source=read_source(given, "generate"),
        special_input=policies.special_input or "literal",
        insert_special=policies.insert_special or "none",
        question=bool(given.demo) and policies.input_mode == "tokens",
        activation_bits=bits,
        threads=given.threads,
        kernel=kernel_name(given.kernel),
        max_tokens=receipt.settings.max_tokens,
        checkpoint_bytes=0,
        stop_tokens=receipt.settings.stop_tokens,
        text_output=False,
        timeout_seconds=given.timeout_seconds,
        prefill_block_tokens=given.prefill_block_tokens or SCORE_BLOCK_TOKENS,
        sampler=sampler_from(_sampling(given, receipt)),
        save_logits=None,
        receipt=None,
    )


def _other_contract(receipt: Receipt) -> InvalidInputError:
    return InvalidInputError(
        f"the receipt is of the contract {receipt.model.contract}, by which this program does not compute "
        "the model",
        "receipt",
    )


def _sampling(given: argparse.Namespace, receipt: Receipt) -> dict[str, Any]:
    sampling = receipt.settings.sampling
    if given.seed is None:
        return sampling
    if "seed" not in sampling:
        raise InvalidInputError("--seed: the receipt is of an answer that was not drawn", "seed")
    return {**sampling, "seed": given.seed}


def _check_prompt(receipt: Receipt, tokens: Sequence[int]) -> None:
    expected = receipt.prompt
    if (len(tokens), digest_of(tokens)) != (expected.tokens, expected.sha256):
        raise InvalidInputError(
            f"the prompt is not the receipt's: it has {len(tokens)} tokens, the receipt's {expected.tokens}, "
            "and their digests differ",
            "prompt",
        )


def _help() -> None:
    parser = Parser(
        prog="prism-inference replay",
        description="Run again what a receipt recorded, and say whether tokens and last logits agree.",
        epilog="exit codes: 0 all agrees, 11 something differs, others as of prism-inference",
    )
    parser.add_argument("receipt", metavar="RECEIPT", help="the file that --receipt wrote")
    print_help(parser, GROUPS)
