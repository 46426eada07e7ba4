"""The request fields that all generating endpoints share: sampling, output length, stops, streaming.

Reads and checks them, and joins them with a prompt into work for the engine. Every answer is sampled by the
engine's `chain` sampler; a field that is not given has the sampler's own default.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import ContextError
from engine.receipt import EXACT_IDS, PromptPolicies
from engine.runtime import GenerationOptions
from engine.sampling import ChainSampler, ChainSettings, Sampler
from server.backend import Backend, Reasoning
from server.errors import ApiError, bad_field
from server.fields import Fields, FieldTable
from server.job import Work
from server.limits import Limits

MAX_BIASES = 1024
MAX_STOPS = 4
MAX_STOP_CHARACTERS = 256

GENERATION_HONOURED = (
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "seed",
    "stop",
    "receipt",
)
GENERATION_IGNORED: dict[str, type] = {"user": str, "metadata": dict, "store": bool, "service_tier": str}
GENERATION_REFUSED: dict[str, tuple[object, ...]] = {"n": (1,)}
STREAM_OPTIONS = FieldTable(
    honoured=("include_usage",), ignored={}, refused={"include_obfuscation": (False,)}
)


@dataclass(frozen=True)
class Request:
    """A parsed request: the engine's work, and how the client wants to get the answer."""

    work: Work
    stream: bool
    include_usage: bool


@dataclass(frozen=True)
class Prompt:
    """A prompt as token ids, with what follows from it for the generation."""

    tokens: Sequence[int]
    stop_tokens: tuple[int, ...]
    reasoning: Reasoning = "off"
    stable_prefix: int = 0
    policies: PromptPolicies = EXACT_IDS


def check_model(fields: Fields, served: str) -> None:
    """The model field, where given, must name the one that is served."""
    model = fields.string("model")
    if model is not None and model != served:
        raise ApiError(
            404, "model: this server does not serve that model", param="model", code="model_not_found"
        )


def read_stream(fields: Fields) -> tuple[bool, bool]:
    """Whether to stream, and whether with a usage chunk."""
    stream = bool(fields.boolean("stream"))
    options = fields.typed("stream_options", dict)
    if options is None:
        return stream, False
    if not stream:
        raise bad_field("stream_options", "is only allowed with stream: true")
    checked = STREAM_OPTIONS.check(options, "stream_options")
    return stream, bool(checked.boolean("include_usage"))


def read_request(fields: Fields, prompt: Prompt, backend: Backend, limits: Limits) -> Request:
    """The whole request, once its prompt is known."""
    stream, include_usage = read_stream(fields)
    work = Work(
        prompt=tuple(prompt.tokens),
        options=GenerationOptions(
            max_tokens=_max_tokens(fields, len(prompt.tokens), backend.facts.context, limits),
            stop_tokens=prompt.stop_tokens,
            stable_prefix=prompt.stable_prefix,
        ),
        sampler=_sampler(fields, prompt.tokens, backend.facts.vocabulary_size),
        stops=_stops(fields),
        reasoning=prompt.reasoning,
        receipt=prompt.policies if fields.boolean("receipt") else None,
    )
    return Request(work, stream, include_usage)


def _max_tokens(fields: Fields, prompt_tokens: int, context: int, limits: Limits) -> int:
    if not prompt_tokens:
        raise bad_field("prompt", "is empty; at least one token is needed")
    asked = [
        (name, value)
        for name in ("max_completion_tokens", "max_tokens")
        if (value := fields.integer(name, 1, 1 << 31)) is not None
    ]
    if len({value for _, value in asked}) > 1:
        raise bad_field("max_tokens", "differs from max_completion_tokens; give one of them")
    room = context - prompt_tokens
    tokens = asked[0][1] if asked else max(min(room, limits.default_max_tokens), 1)
    if tokens > room:
        raise ContextError(prompt_tokens, tokens, context)
    return tokens


def _sampler(fields: Fields, prompt: Sequence[int], vocabulary_size: int) -> Sampler:
    seed = fields.integer("seed", 0, (1 << 64) - 1)
    asked: dict[str, Any] = {
        "temperature": fields.number("temperature", 0, 2),
        "top_k": fields.integer("top_k", 0, 1 << 31),
        "top_p": fields.number("top_p", 0, 1),
        "min_p": fields.number("min_p", 0, 1),
        "presence_penalty": fields.number("presence_penalty", -2, 2),
        "frequency_penalty": fields.number("frequency_penalty", -2, 2),
        "repetition_penalty": fields.number("repetition_penalty", 0.01, 2),
        "logit_bias": _logit_bias(fields, vocabulary_size),
    }
    given = {name: value for name, value in asked.items() if value is not None}
    return ChainSampler(ChainSettings(_random_seed() if seed is None else seed, **given), prompt)


def _random_seed() -> int:
    """53 bits, so that JSON tools that read numbers as binary64 keep a receipt's seed."""
    return secrets.randbits(53)


def _logit_bias(fields: Fields, vocabulary_size: int) -> dict[int, float] | None:
    biases = fields.typed("logit_bias", dict)
    if biases is None:
        return None
    path = fields.path("logit_bias")
    if len(biases) > MAX_BIASES:
        raise bad_field(path, f"must have at most {MAX_BIASES} entries")
    entries, found = Fields(biases, path), {}
    for key in biases:
        if not re.fullmatch(r"0|[1-9][0-9]{0,9}", key, re.ASCII) or int(key) >= vocabulary_size:
            raise bad_field(path, f"the keys must be token ids from 0 to {vocabulary_size - 1}")
        bias = entries.number(key, -100, 100)
        if bias is None:
            raise bad_field(entries.path(key), "must be a number", "invalid_type")
        found[int(key)] = bias
    return found


def _stops(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else fields.typed("stop", list)
    if not 1 <= len(stops) <= MAX_STOPS:
        raise bad_field("stop", f"must have 1 to {MAX_STOPS} strings")
    for index, stop in enumerate(stops):
        path = "stop" if isinstance(value, str) else f"stop[{index}]"
        if not isinstance(stop, str):
            raise bad_field(path, "must be a string", "invalid_type")
        if not 1 <= len(stop) <= MAX_STOP_CHARACTERS:
            raise bad_field(path, f"must have 1 to {MAX_STOP_CHARACTERS} characters")
    return tuple(stops)
