"""The command line of `prism-inference-server`: which options there are, and what a valid set of them is.

Everything that can be wrong without reading the key or the model is refused here, as one
`InvalidInputError`. Options that the driver has too mean the same here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auth.origins import OriginRule, is_origin
from engine.chat import TEMPLATES
from engine.driver import values
from engine.driver.option_table import MAX_BYTES, MAX_CONTEXT, Once, Parser
from engine.driver.pinned_model import pinned_model
from engine.errors import InvalidInputError
from engine.memory_budget import default_memory_bytes
from engine.model import DEFAULT_ACTIVATION_BITS, DEFAULT_CONTEXT
from server.limits import Limits
from server.listener import check_loopback
from server.model_backend import ModelOptions

DEFAULT_CHECKPOINT_BYTES = 1 << 30

EPILOG = """\
The key comes from a file of mode 0600 (prism-inference-key makes one) or from the first line of
standard input. Standard output carries one JSON record, once the model is ready to serve.

exit codes:
  0 stopped as asked, 1 internal error, 2 wrong option, 3 memory budget, 4 not the pinned file,
  5 not a usable model, 6 output cannot be written, 7 engine fault, 8 stopped as asked but an answer
  was cut off, 9 no usable key, 10 address or port not available
"""


@dataclass(frozen=True)
class Options:
    """A valid command line. `key_file` is None if the key comes from standard input."""

    model: ModelOptions
    model_id: str | None
    key_file: Path | None
    host: str
    port: int
    origins: OriginRule
    limits: Limits


def parse_options(arguments: Sequence[str]) -> Options:
    """Read and check a command line; `--help` prints and exits."""
    given = _parser().parse_strictly(arguments)
    if len(given.token_stdin or ()) > 1:
        raise InvalidInputError("--token-stdin is given twice", "token_stdin")
    if (given.token_file is None) == (given.token_stdin is None):
        raise InvalidInputError("exactly one of --token-file and --token-stdin is needed", "token_file")
    model = pinned_model(given)
    chat_template = given.chat_template or model.conversation.chat_template
    if chat_template is not None and chat_template not in TEMPLATES:
        known = ", ".join(TEMPLATES)
        raise InvalidInputError(f"there is no such chat template; there are {known}", "chat_template")
    return Options(
        model=ModelOptions(
            pin=model.pin,
            memory_bytes=given.memory_bytes or default_memory_bytes(model.pin.nbytes),
            state_bytes=given.state_bytes,
            checkpoint_bytes=_default(given.checkpoint_bytes, DEFAULT_CHECKPOINT_BYTES),
            context=given.context or model.conversation.context,
            activation_bits=int(given.activation_bits or DEFAULT_ACTIVATION_BITS),
            threads=given.threads,
            kernel=given.kernel,
            chat_template=chat_template,
            stop_tokens=model.conversation.stop_tokens,
        ),
        model_id=given.model_id or model.name,
        key_file=given.token_file,
        host=check_loopback(given.host or "127.0.0.1"),
        port=given.port or 0,
        origins=OriginRule(frozenset(origin.encode("ascii") for origin in given.allow_origin or ())),
        limits=_limits(given),
    )


def _parser() -> Parser:
    parser = Parser(
        prog="prism-inference-server",
        description="Serve a verified GGUF model on this machine, behind a key.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_model_options(parser)
    _add_engine_options(parser)
    _add_access_options(parser)
    group = parser.add_argument_group("limits")
    for name, bounds in Limits.bounds().items():
        default = getattr(Limits, name)
        seconds = name.endswith("_seconds")
        kind = _seconds if seconds else values.integer(int(bounds.low), int(bounds.high))
        _add(group, _flag(name), kind, "N", f"{bounds.help} (default: {default})")
    return parser


def _add_model_options(parser: Parser) -> None:
    group = parser.add_argument_group(
        "model",
        "the demo; a manifest; or its path, with its name in the catalogue or with length and SHA-256",
    )
    group.add_argument(
        "--demo", action="store_true", default=None, help="the small model that comes with this program"
    )
    _add(group, "--manifest", values.path, "FILE", "TOML file that pins the model")
    _add(group, "--model", values.path, "PATH", "absolute path of the GGUF file")
    _add(
        group,
        "--catalogue",
        str,
        "NAME",
        "its name in the catalogue of published files, which may also say context, chat format and stops",
    )
    _add(group, "--bytes", values.integer(1, MAX_BYTES), "N", "its exact length")
    _add(group, "--sha256", values.digest, "HEX", "its SHA-256")
    _add(group, "--model-id", _model_id, "NAME", "what clients call it (default: the file's own name)")
    _add(
        group,
        "--context",
        values.integer(1, MAX_CONTEXT),
        "N",
        "longest sequence in tokens, output included "
        f"(default: the catalogue's, or else the model's, at most {DEFAULT_CONTEXT})",
    )
    _add(group, "--chat-template", str, "NAME", "built-in chat format for a file whose own is not known")


def _add_engine_options(parser: Parser) -> None:
    group = parser.add_argument_group("engine")
    _add(
        group,
        "--memory-bytes",
        values.integer(1, MAX_BYTES),
        "N",
        "memory for the model (default: half of this machine's memory, at least the file's length)",
    )
    _add(
        group, "--state-bytes", values.integer(1, MAX_BYTES), "N", "memory for the state (default: no bound)"
    )
    _add(
        group,
        "--checkpoint-bytes",
        values.integer(0, MAX_BYTES),
        "N",
        f"memory for checkpoints of the state (default: {DEFAULT_CHECKPOINT_BYTES})",
    )
    _add(
        group,
        "--activation-bits",
        values.choice("8", "16"),
        "8|16",
        f"precision of activations in packed matrices (default: {DEFAULT_ACTIVATION_BITS})",
    )
    _add(group, "--threads", values.integer(1, 256), "N", "threads (default: one a processor)")
    _add(group, "--kernel", str, "NAME", "implementation to compute with (default: the best)")


def _add_access_options(parser: Parser) -> None:
    group = parser.add_argument_group("access")
    _add(group, "--token-file", values.path, "FILE", "file with the key, readable by its owner alone")
    group.add_argument(
        "--token-stdin", action="append_const", const=True, help="read the key from standard input"
    )
    _add(group, "--host", str, "ADDRESS", "loopback address to listen on (default: 127.0.0.1)")
    _add(group, "--port", values.integer(0, 65535), "N", "port (default: 0, any free one)")
    group.add_argument(
        "--allow-origin",
        action="append",
        type=_origin,
        metavar="ORIGIN",
        help="web origin whose pages may call, such as http://localhost:3000; may be repeated",
    )


def _add(
    group: argparse._ArgumentGroup, name: str, kind: Callable[[str], Any], metavar: str, text: str
) -> None:
    group.add_argument(name, action=Once, type=kind, metavar=metavar, help=text)


def _limits(given: argparse.Namespace) -> Limits:
    chosen = {}
    for name, bounds in Limits.bounds().items():
        value = getattr(given, name)
        if value is None:
            continue
        if not bounds.low <= value <= bounds.high:
            raise InvalidInputError(f"{_flag(name)}: must be from {bounds.low:g} to {bounds.high:g}", name)
        chosen[name] = value
    return Limits(**chosen)


def _seconds(text: str) -> float:
    value = values.decimal(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError("must be a number of seconds")
    return value


def _model_id(text: str) -> str:
    if not 1 <= len(text) <= 128 or not text.isprintable():
        raise argparse.ArgumentTypeError("must have 1 to 128 printable characters")
    return text


def _origin(text: str) -> str:
    if not is_origin(text):
        raise argparse.ArgumentTypeError("must be one exact origin such as http://localhost:3000")
    return text


def _default(value: int | None, default: int) -> int:
    return default if value is None else value


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
