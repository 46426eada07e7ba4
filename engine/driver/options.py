"""What a valid command line of `prism-inference` asks for.

Everything that can be wrong without reading a prompt or a model is refused here, as one
`InvalidInputError` that names options and rules, never values.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.artifact import Pin
from engine.driver.command_line import parse_arguments
from engine.driver.option_table import (
    DEFAULT_TEMPERATURE,
    DEFAULT_TOP_K,
    DEFAULT_TOP_P,
    DEMO_CHECKPOINT_BYTES,
    DEMO_MAX_TOKENS,
    MAX_CONTEXT,
    OPTIONS,
    SCORE_BLOCK_TOKENS,
)
from engine.driver.pinned_model import pinned_model
from engine.errors import ContextError, InvalidInputError
from engine.kernels import kernel_name
from engine.model import DEFAULT_ACTIVATION_BITS
from engine.prompt_input import check_prompt
from engine.sampling import GreedySampler, ReferenceSampler, Sampler
from engine.tokenizer import InsertSpecialPolicy, SpecialInputPolicy

Mode = Literal["generate", "tokenize", "score"]
InputKind = Literal["prompt", "prompt_file", "tokens", "tokens_file"]

INPUTS: tuple[InputKind, ...] = ("prompt", "prompt_file", "tokens", "tokens_file")
SAMPLING = ("seed", "temperature", "top_k", "top_p")
COMPUTING = {"prefill_block_tokens", "activation_bits", "kernel", "threads"}
GENERATION = {
    *("checkpoint_bytes", "stop_tokens", "output", "timeout_seconds", "receipt", "sampling", *SAMPLING)
}
EXCLUDED: dict[Mode, set[str]] = {
    "generate": {"save_logits"},
    "tokenize": {"save_logits"} | COMPUTING | GENERATION,
    "score": {"max_tokens"} | GENERATION,
}
REQUIRED: dict[Mode, tuple[str, ...]] = {
    "generate": ("max_tokens", "checkpoint_bytes"),
    "tokenize": (),
    "score": (),
}


@dataclass(frozen=True)
class InputSource:
    """Where the prompt comes from; `value` is the option's text, or the ids of `--tokens`."""

    kind: InputKind
    value: str | tuple[int, ...]

    @property
    def is_text(self) -> bool:
        """Whether it is text to be encoded, not exact ids."""
        return self.kind in ("prompt", "prompt_file")


@dataclass(frozen=True)
class Options:
    """A valid command line. `memory_bytes`, `context` and `threads` are None where a default rule applies.

    `question` says that a text prompt is a user's message, to be put into the model's chat format.
    """

    mode: Mode
    pin: Pin
    memory_bytes: int | None
    context: int | None
    source: InputSource
    special_input: SpecialInputPolicy
    insert_special: InsertSpecialPolicy
    question: bool
    activation_bits: int
    threads: int | None
    kernel: str
    max_tokens: int  # 0 where nothing is generated or reserved
    checkpoint_bytes: int
    stop_tokens: tuple[int, ...]
    text_output: bool
    timeout_seconds: int | None
    prefill_block_tokens: int
    sampler: Sampler
    save_logits: Path | None
    receipt: Path | None

    @property
    def prompt_allowance(self) -> int:
        """The most prompt tokens that can fit, as far as the command line tells."""
        return (self.context or MAX_CONTEXT) - self.max_tokens


def parse_options(arguments: Sequence[str]) -> Options:
    """Reads and checks a command line for one of the modes. `--help` prints and exits."""
    given = parse_arguments(arguments)
    mode: Mode = given.mode or "generate"
    _check_mode(given, mode)
    if given.demo:
        _complete_demo(given, mode)
    source, sampler = read_source(given, mode), _sampler(given)
    options = Options(
        mode=mode,
        pin=pinned_model(given).pin,
        memory_bytes=given.memory_bytes,
        context=given.context,
        source=source,
        special_input=given.special_input or "literal",
        insert_special=given.insert_special or "none",
        question=bool(given.demo) and mode != "score" and source.is_text,
        activation_bits=int(given.activation_bits or DEFAULT_ACTIVATION_BITS),
        threads=given.threads,
        kernel=kernel_name(given.kernel),
        max_tokens=given.max_tokens or 0,
        checkpoint_bytes=given.checkpoint_bytes or 0,
        stop_tokens=given.stop_tokens or (),
        text_output=given.output == "text",
        timeout_seconds=given.timeout_seconds,
        prefill_block_tokens=given.prefill_block_tokens or (SCORE_BLOCK_TOKENS if mode == "score" else 1),
        sampler=sampler,
        save_logits=given.save_logits,
        receipt=given.receipt,
    )
    prompt_tokens = len(source.value) if source.kind == "tokens" else 1
    if prompt_tokens > options.prompt_allowance:
        raise ContextError(prompt_tokens, options.max_tokens, options.context or MAX_CONTEXT)
    return options


def _check_mode(given: argparse.Namespace, mode: Mode) -> None:
    for option in (option for options in OPTIONS.values() for option in options):
        name = option.name
        value = getattr(given, name)
        if value is not None and name in EXCLUDED[mode]:
            raise InvalidInputError(f"{option.flag} is no option of --mode {mode}", name)
        if value is None and name in REQUIRED[mode] and not given.demo:
            raise InvalidInputError(f"{option.flag} is required with --mode {mode}", name)
    if mode == "generate" and given.max_tokens == 0:
        raise InvalidInputError("--max-tokens: must be at least 1", "max_tokens")


def _complete_demo(given: argparse.Namespace, mode: Mode) -> None:
    """What the user of the demo need not say."""
    for name in ("special_input", "insert_special"):
        if getattr(given, name) is not None and mode != "score":
            raise InvalidInputError(
                f"{_flag(name)} is for plain text; with --demo the text is a question", name
            )
    if mode == "generate":
        given.max_tokens = given.max_tokens or DEMO_MAX_TOKENS
        given.checkpoint_bytes = given.checkpoint_bytes or DEMO_CHECKPOINT_BYTES
        given.prefill_block_tokens = given.prefill_block_tokens or SCORE_BLOCK_TOKENS


def read_source(given: argparse.Namespace, mode: Mode) -> InputSource:
    """The one input that the options name."""
    kinds = [kind for kind in INPUTS if getattr(given, kind) is not None]
    if len(kinds) != 1:
        names = ", ".join(map(_flag, INPUTS))
        raise InvalidInputError(f"exactly one of {names} is needed, but {len(kinds)} are given")
    source = InputSource(kinds[0], getattr(given, kinds[0]))
    if not source.is_text:
        for name in ("special_input", "insert_special"):
            if getattr(given, name, None) is not None:
                raise InvalidInputError(f"{_flag(name)} is for text; token ids are taken as they are", name)
    if source.kind == "prompt":
        return InputSource("prompt", _argument_text(given.prompt))
    if source.kind.endswith("_file") and not _readable(str(source.value), mode):
        raise InvalidInputError(f"{_flag(source.kind)}: must be an absolute path or -", source.kind)
    return source


def _argument_text(argument: str) -> str:
    """The text of an argument's bytes, which are UTF-8 whatever encoding the system decoded them with."""
    try:
        raw = os.fsencode(argument)
    except UnicodeEncodeError:  # it cannot have come from the system
        raw = argument.encode("utf-8", "surrogatepass")
    return check_prompt(raw)


def _readable(path: str, mode: Mode) -> bool:
    """Only score mode takes a relative path; in the others the working folder must not matter."""
    return path == "-" or (bool(path) and (mode == "score" or Path(path).is_absolute()))


def _sampler(given: argparse.Namespace) -> Sampler:
    if given.sampling != "reference":
        for name in SAMPLING:
            if getattr(given, name) is not None:
                raise InvalidInputError(f"{_flag(name)} needs --sampling reference", name)
        return GreedySampler()
    if given.seed is None:
        raise InvalidInputError("--sampling reference needs --seed", "seed")
    return ReferenceSampler(
        given.seed,
        DEFAULT_TEMPERATURE if given.temperature is None else given.temperature,
        DEFAULT_TOP_K if given.top_k is None else given.top_k,
        DEFAULT_TOP_P if given.top_p is None else given.top_p,
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
