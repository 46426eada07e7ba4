"""The request fields that all generating endpoints share: sampling, output length, stops, streaming.

Reads and checks them, and joins them with a prompt into work for the engine. Without a temperature the
answer is sampled as the engine's `reference` sampler does by default; temperature 0 is greedy.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import ContextError
from engine.runtime import GenerationOptions
from engine.sampling import GreedySampler, ReferenceSampler, Sampler
from server.backend import Backend, Reasoning
from server.errors import ApiError, bad_field
from server.fields import Fields, FieldTable
from server.job import Work
from server.limits import Limits

DEFAULT_TEMPERATURE = 1.0
DEFAULT_TOP_K = 20
DEFAULT_TOP_P = 0.95
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
    "seed",
    "stop",
)
GENERATION_IGNORED: dict[str, type] = {"user": str, "metadata": dict, "store": bool, "service_tier": str}
GENERATION_REFUSED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "min_p": (0, 0.0),
    "logit_bias": ({},),
}
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
        sampler=_sampler(fields),
        stops=_stops(fields),
        reasoning=prompt.reasoning,
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


def _sampler(fields: Fields) -> Sampler:
    temperature = fields.number("temperature", 0, 2)
    top_p = fields.number("top_p", 0, 1)
    top_k = fields.integer("top_k", 0, 1 << 31)
    seed = fields.integer("seed", 0, (1 << 64) - 1)
    reference = ReferenceSampler(
        secrets.randbits(64) if seed is None else seed,
        temperature or DEFAULT_TEMPERATURE,
        DEFAULT_TOP_K if top_k is None else top_k,
        DEFAULT_TOP_P if top_p is None else top_p,
    )
    return GreedySampler() if temperature == 0 else reference


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
