"""Receipts: what one generation was made of and what came of it, in digests, so that it can be run again.

A receipt is one JSON object without prompt, output or key. Whoever has model and prompt can repeat the run
and compare every token and the last logits; `docs/receipts.md` has the format. The reader here is strict,
and the object's own digest finds damage. It is no signature: anyone can write a receipt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from engine.errors import InvalidInputError
from engine.json_line import to_json
from engine.paths import openable
from engine.runtime import MAX_STOP_TOKENS, Finish
from engine.sampler_settings import sampler_from
from engine.strict_json import parse_object
from engine.token_input import MAX_TOKEN_ID, MAX_TOKENS
from engine.tokenizer import InsertSpecialPolicy, SpecialInputPolicy

SCHEMA = 1
MAX_RECEIPT_BYTES = 4 * 1024 * 1024
STEP_DIGITS = 8  # hex digits that `Output.steps` has for every token


@dataclass(frozen=True)
class ModelUsed:
    """The file, the arithmetic with its activation bits, and the context in tokens."""

    sha256: str
    bytes: int
    contract: str
    context: int


@dataclass(frozen=True)
class PromptPolicies:
    """How the prompt came: exact ids, or text with its policies (None for ids)."""

    input_mode: Literal["text", "tokens"] = "tokens"
    special_input: SpecialInputPolicy | None = None
    insert_special: InsertSpecialPolicy | None = None


EXACT_IDS = PromptPolicies()


@dataclass(frozen=True, kw_only=True)
class PromptUsed(PromptPolicies):
    """The prompt: how many ids it has, and their digest."""

    tokens: int
    sha256: str


@dataclass(frozen=True)
class Settings:
    """What was asked for; `sampling` is what the sampler says of itself, its seed included."""

    max_tokens: int
    stop_tokens: tuple[int, ...]
    sampling: dict[str, Any]


@dataclass(frozen=True)
class Output:
    """What came out: the end, the digest of the emitted ids, one short digest a step, the last logits.

    `finish` is `stop` without a `stop_token` if the text ended the answer.
    """

    finish: Finish
    stop_token: int | None
    tokens: int
    sha256: str
    steps: str
    logits_sha256: str


@dataclass(frozen=True)
class ComputedBy:
    """What computed it; nothing of this may change the result."""

    version: str
    kernel: str
    threads: int


@dataclass(frozen=True)
class Receipt:
    """All parts of a receipt."""

    model: ModelUsed
    prompt: PromptUsed
    settings: Settings
    output: Output
    computed_by: ComputedBy

    def document(self) -> dict[str, Any]:
        """The JSON object, its own digest last."""
        content = {"type": "receipt", "schema": SCHEMA, **asdict(self)}
        return {**content, "receipt_sha256": _digest(content)}


def read_receipt(path: Path) -> Receipt:
    """The receipt in a file. Raises `InvalidInputError`, which names the field."""
    try:
        with openable(path).open("rb") as file:
            raw = file.read(MAX_RECEIPT_BYTES + 1)
    except OSError as error:
        raise _refused(f"cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_RECEIPT_BYTES:
        raise _refused(f"is larger than {MAX_RECEIPT_BYTES} bytes")
    try:
        content = parse_object(raw)
    except InvalidInputError as error:
        raise _refused(f"is no acceptable JSON: {error}") from None
    return parse_receipt(content)


def parse_receipt(content: dict[str, Any]) -> Receipt:
    """The receipt that a JSON object is. Raises `InvalidInputError`."""
    if content.get("type") != "receipt":
        raise _refused("is not an object of type 'receipt'")
    if type(content.get("schema")) is not int or content["schema"] != SCHEMA:
        raise _refused(f"has another schema than {SCHEMA}, the one that this program reads")
    _check_keys("", content, {"type", "schema", "receipt_sha256", *_KINDS})
    for part, kinds in _KINDS.items():
        if type(content[part]) is not dict:
            raise _refused(f"has no usable '{part}'")
        _check_keys(f"{part}.", content[part], set(kinds))
        for name, fits in kinds.items():
            if not fits(content[part][name]):
                raise _refused(f"has no usable '{part}.{name}'")
    receipt = _built(content)
    if receipt.document()["receipt_sha256"] != content["receipt_sha256"]:
        raise _refused("is damaged: its content does not agree with its receipt_sha256")
    return receipt


def _built(content: dict[str, Any]) -> Receipt:
    settings, output = content["settings"], Output(**content["output"])
    if len(output.steps) != STEP_DIGITS * output.tokens or output.tokens > settings["max_tokens"]:
        raise _refused("has an output whose counts do not agree")
    return Receipt(
        ModelUsed(**content["model"]),
        PromptUsed(**content["prompt"]),
        Settings(
            settings["max_tokens"],
            tuple(settings["stop_tokens"]),
            sampler_from(settings["sampling"]).describe(),
        ),
        output,
        ComputedBy(**content["computed_by"]),
    )


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of the content as compact JSON with sorted keys."""
    return hashlib.sha256(to_json(_sorted(content)).encode("utf-8")).hexdigest()


def _sorted(value: Any) -> Any:
    return {key: _sorted(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def _check_keys(prefix: str, found: dict[str, Any], expected: set[str]) -> None:
    if missing := sorted(expected - set(found)):
        raise _refused(f"has no '{prefix}{missing[0]}'")
    if len(found) > len(expected):
        raise _refused(f"has an unknown field {'in ' + prefix[:-1] if prefix else 'at its top'}")


def _refused(problem: str) -> InvalidInputError:
    return InvalidInputError(f"the receipt {problem}", "receipt")


def _integer(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _one_of(*values: str | None) -> Callable[[Any], bool]:
    return lambda value: value in values


def _matching(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _token_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MAX_STOP_TOKENS and all(map(_TOKEN, value))


_SHA256 = _matching("[0-9a-f]{64}")
_NAME = _matching(r"[\w.:/+-]{1,100}")
_TOKEN = _integer(0, MAX_TOKEN_ID)
_COUNT = _integer(1, MAX_TOKENS)
_KINDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "model": {"sha256": _SHA256, "bytes": _integer(1, 2**63 - 1), "contract": _NAME, "context": _COUNT},
    "prompt": {
        "input_mode": _one_of("text", "tokens"),
        "special_input": _one_of("literal", "parse", None),
        "insert_special": _one_of("none", "model", None),
        "tokens": _COUNT,
        "sha256": _SHA256,
    },
    "settings": {
        "max_tokens": _COUNT,
        "stop_tokens": _token_list,
        "sampling": lambda value: isinstance(value, dict),
    },
    "output": {
        "finish": _one_of("stop", "length"),
        "stop_token": lambda value: value is None or _TOKEN(value),
        "tokens": _integer(0, MAX_TOKENS),
        "sha256": _SHA256,
        "steps": _matching("[0-9a-f]*"),
        "logits_sha256": _SHA256,
    },
    "computed_by": {"version": _NAME, "kernel": _NAME, "threads": _integer(1, 1 << 16)},
}
