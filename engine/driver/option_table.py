"""Every option of `prism-inference` with its reader and help.

Which options go together is judged in `options`. Messages name options and rules, never the values, which
may be prompt text.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from engine.driver import values
from engine.driver.output import write_text
from engine.errors import InvalidInputError
from engine.model import DEFAULT_ACTIVATION_BITS, DEFAULT_CONTEXT
from engine.token_input import MAX_TOKENS

MAX_BYTES = 2**63 - 1
MAX_CONTEXT = MAX_TOKENS
SCORE_BLOCK_TOKENS = 64
DEMO_MAX_TOKENS, DEMO_CHECKPOINT_BYTES = 256, 1 << 26
DEFAULT_TEMPERATURE, DEFAULT_TOP_K, DEFAULT_TOP_P = 1.0, 20, 0.95


@dataclass(frozen=True)
class Option:
    """One option with exactly one value, or with none (then it is a switch) if it has no metavar."""

    flag: str
    read: Callable[[str], Any]
    metavar: str
    help: str

    @property
    def name(self) -> str:
        """What the parsed values call it."""
        return self.flag[2:].replace("-", "_")

    def store(self, given: argparse.Namespace, text: str) -> None:
        """Put the value into `given`; refuses a wrong or a second one."""
        if getattr(given, self.name) is not None:
            raise InvalidInputError(f"{self.flag} is given twice", self.name)
        try:
            setattr(given, self.name, self.read(text))
        except argparse.ArgumentTypeError as error:
            raise InvalidInputError(f"{self.flag}: {error}", self.name) from None


SIZE = values.integer(1, MAX_BYTES)

OPTIONS: dict[str, tuple[Option, ...]] = {
    "mode": (
        Option(
            "--mode",
            values.choice("generate", "tokenize", "score"),
            "generate|tokenize|score",
            "continue a prompt; say its token ids; or say how likely given ids are (default: generate)",
        ),
    ),
    "model: the demo; a manifest; or its path, with its name in the catalogue or with length and SHA-256": (
        Option(
            "--demo",
            bool,
            "",
            "the small model that comes with this program; a text prompt is then a question to it",
        ),
        Option("--manifest", values.path, "FILE", "TOML file that pins the model; 'pin' writes one"),
        Option("--model", values.path, "PATH", "absolute path of the GGUF file"),
        Option(
            "--catalogue",
            str,
            "NAME",
            "its name in the catalogue of published files; 'identify --help' lists it",
        ),
        Option("--bytes", SIZE, "N", "its exact length"),
        Option("--sha256", values.digest, "HEX", "its SHA-256"),
        Option(
            "--memory-bytes",
            SIZE,
            "N",
            "memory for the model (default: half of this machine's, at least the file's length); in tokenize "
            "mode, for the part of the file that may be kept",
        ),
        Option(
            "--context",
            values.integer(1, MAX_CONTEXT),
            "N",
            f"longest sequence in tokens, output included (default: the model's, at most {DEFAULT_CONTEXT})",
        ),
    ),
    "input: exactly one of the first four": (
        Option("--prompt", str, "TEXT", "plain text; no chat template is applied"),
        Option("--prompt-file", str, "PATH|-", "exact UTF-8 text from an absolute path or standard input"),
        Option("--tokens", values.token_ids, "ID,ID", "exact token ids"),
        Option(
            "--tokens-file", str, "PATH|-", "JSON array of token ids from an absolute path or standard input"
        ),
        Option(
            "--special-input",
            values.choice("literal", "parse"),
            "literal|parse",
            "whether text may spell special tokens (default: literal, it may not)",
        ),
        Option(
            "--insert-special",
            values.choice("none", "model"),
            "none|model",
            "whether text gets the BOS and EOS that the model's flags ask for (default: none)",
        ),
    ),
    "generation": (
        Option(
            "--max-tokens",
            values.integer(0, MAX_CONTEXT),
            "N",
            "most tokens to generate; in tokenize mode, context to reserve for output (default there: 0; "
            f"with --demo {DEMO_MAX_TOKENS})",
        ),
        Option(
            "--checkpoint-bytes",
            SIZE,
            "N",
            f"memory for checkpoints of the model's state (default with --demo: {DEMO_CHECKPOINT_BYTES})",
        ),
        Option("--stop-tokens", values.stop_token_ids, "ID,ID", "more ids that end the answer, at most 256"),
        Option(
            "--output",
            values.choice("tokens", "text"),
            "tokens|text",
            "records with token ids alone, or with bytes and text too (default: tokens)",
        ),
        Option("--timeout-seconds", values.integer(1, 3600), "N", "time for the generation, after loading"),
        Option(
            "--receipt", values.path, "FILE", "write what 'replay' needs to compare another run with this"
        ),
        Option(
            "--prefill-block-tokens",
            values.integer(1, 256),
            "N",
            "prompt tokens that are evaluated together, with the same results (default: 1; in score mode "
            f"{SCORE_BLOCK_TOKENS})",
        ),
    ),
    "sampling": (
        Option(
            "--sampling",
            values.choice("greedy", "reference"),
            "greedy|reference",
            "always the likeliest token, or a reproducible draw (default: greedy)",
        ),
        Option("--seed", values.integer(0, 2**64 - 1), "N", "seed of the draws; needed with reference"),
        Option("--temperature", values.decimal, "X", f"above 0 (default: {DEFAULT_TEMPERATURE})"),
        Option(
            "--top-k",
            values.integer(0, MAX_BYTES),
            "N",
            f"draw from the N likeliest tokens, 0 from all (default: {DEFAULT_TOP_K})",
        ),
        Option(
            "--top-p",
            values.decimal,
            "X",
            f"draw from the likeliest with this share of the mass (default: {DEFAULT_TOP_P})",
        ),
    ),
    "score mode": (
        Option("--save-logits", values.path, "FILE", "write float32 logits [positions, vocabulary] as .npy"),
    ),
    "engine": (
        Option(
            "--activation-bits",
            values.choice("8", "16"),
            "8|16",
            f"precision of activations in packed matrices (default: {DEFAULT_ACTIVATION_BITS})",
        ),
        Option(
            "--kernel", str, "NAME", "implementation to compute with; see --capabilities (default: the best)"
        ),
        Option("--threads", values.integer(1, 256), "N", "threads (default: one a processor)"),
    ),
}


class Once(argparse.Action):
    """Stores a value and refuses the option's second appearance."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, flag: Any = None
    ) -> None:
        """Called by argparse for each appearance."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{flag or self.metavar} is given twice")
        setattr(namespace, self.dest, value)


class Parser(argparse.ArgumentParser):
    """Raises `InvalidInputError` where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse with what is wrong."""
        raise InvalidInputError(message.removeprefix("argument "))

    def add_options(self, groups: Mapping[str, Iterable[Option]]) -> None:
        """Take these options, each at most once, in groups by their titles."""
        for title, options in groups.items():
            group = self.add_argument_group(title)
            for option in options:
                group.add_argument(
                    option.flag, action=Once, type=option.read, metavar=option.metavar, help=option.help
                )

    def print_help(self, file: Any = None) -> None:  # noqa: ARG002 - argparse's signature
        """The help on standard output in UTF-8; raises `OSError` if that cannot be written."""
        write_text(self.format_help())

    def parse_strictly(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values; None for what is not given. Leftovers are refused without repeating them."""
        given, left = self.parse_known_args(list(arguments))
        if left:
            flag = left[0].partition("=")[0]
            named = flag.startswith("--") and flag[2:].replace("-", "").isalnum()
            raise InvalidInputError(
                f"there is no option {flag}" if named else "an argument belongs to no option"
            )
        return given
