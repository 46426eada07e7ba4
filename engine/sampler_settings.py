"""Makes the sampler again that a description says: the inverse of `Sampler.describe`.

Descriptions may come from a file that passed through other JSON tools, so every value is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.errors import InvalidInputError
from engine.sampling import (
    ChainSampler,
    ChainSettings,
    GreedySampler,
    ReferenceSampler,
    Sampler,
    SwiftSampler,
)
from engine.token_input import MAX_TOKEN_ID

_KINDS = {"seed": int, "top_k": int} | dict.fromkeys(
    ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"), float
)
_REFERENCE = ("seed", "temperature", "top_k", "top_p")
_CHAIN = tuple(_KINDS)


def sampler_from(
    description: Mapping[str, Any], *, prompt: Sequence[int] = (), vocabulary_size: int = 1
) -> Sampler:
    """The sampler that describes itself so, at the start of an answer to `prompt`.

    Raises `InvalidInputError` for a description that no sampler of this program gives.
    """
    sampler = _made(description, prompt, vocabulary_size)
    if sampler.describe() != description:
        raise _refused()
    return sampler


def _made(description: Mapping[str, Any], prompt: Sequence[int], vocabulary_size: int) -> Sampler:
    match description.get("mode"):
        case "greedy":
            return GreedySampler()
        case "reference":
            return ReferenceSampler(**_numbers(description, _REFERENCE))
        case "swift":
            return SwiftSampler(**_numbers(description, ("seed",)), vocabulary_size=vocabulary_size)
        case "chain":
            biases = _biases(description.get("logit_bias"))
            return ChainSampler(ChainSettings(**_numbers(description, _CHAIN), logit_bias=biases), prompt)
    raise _refused()


def _numbers(description: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: _number(description.get(name), _KINDS[name]) for name in names}


def _number(value: Any, kind: type) -> Any:
    """A number of the setting's type; JSON tools may write 1.0 as 1."""
    if type(value) is int and kind is float and abs(value) < 1 << 53:
        value = float(value)
    if type(value) is not kind:
        raise _refused()
    return value


def _biases(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise _refused()
    biases = {}
    for key, bias in value.items():
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= MAX_TOKEN_ID):
            raise _refused()
        biases[int(key)] = _number(bias, float)
    return biases


def _refused() -> InvalidInputError:
    return InvalidInputError("the sampling settings are not those of a sampler of this program", "sampling")
