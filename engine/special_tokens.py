"""The special-token declarations of a model: which ids end a generation, which ones may be inserted.

Only declared ids count; nothing is inferred from spellings. It does not know what the tokens look like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from engine.errors import InvalidInputError, MetadataError
from engine.metadata import Metadata
from engine.token_input import MAX_TOKENS

MAX_STOP_TOKENS = 256


@dataclass(frozen=True)
class SpecialTokens:
    """Declared ids, all inside the vocabulary; absent ids and absent flags are None."""

    vocabulary_size: int
    eos: int
    bos: int | None = None
    eot: int | None = None
    eom: int | None = None
    padding: int | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None

    @classmethod
    def from_metadata(cls, metadata: Metadata, vocabulary_size: int) -> Self:
        """Read the declarations; an end-of-sequence id is required."""
        eos = _token_id(metadata, "eos", vocabulary_size)
        if eos is None:
            raise MetadataError("tokenizer.ggml.eos_token_id is missing; a generation could not end")
        return cls(
            vocabulary_size=vocabulary_size,
            eos=eos,
            bos=_token_id(metadata, "bos", vocabulary_size),
            eot=_token_id(metadata, "eot", vocabulary_size),
            eom=_token_id(metadata, "eom", vocabulary_size),
            padding=_token_id(metadata, "padding", vocabulary_size),
            add_bos=_flag(metadata, "add_bos_token"),
            add_eos=_flag(metadata, "add_eos_token"),
        )

    def generation(self, max_tokens: int, caller_stops: Sequence[int] = ()) -> tuple[int, ...]:
        """The stop set of a generation of at most `max_tokens` tokens, which must leave room for a prompt.

        How long the prompt really is, and the model's own context, is checked where both are known.
        """
        if not 1 <= max_tokens < MAX_TOKENS:
            raise InvalidInputError(
                f"max_tokens is {max_tokens}; expected 1 to {MAX_TOKENS - 1}, to leave a prompt room in the "
                "largest context",
                "max_tokens",
            )
        return self.stop_set(caller_stops)

    def stop_set(self, caller_stops: Sequence[int] = ()) -> tuple[int, ...]:
        """EOS, EOT and EOM where declared, then the caller's stops, each once, at most 256."""
        for token in caller_stops:
            if not 0 <= token < self.vocabulary_size:
                raise InvalidInputError(
                    f"stop token {token} is outside the vocabulary of {self.vocabulary_size} tokens",
                    "stop_tokens",
                )
        declared = (token for token in (self.eos, self.eot, self.eom) if token is not None)
        stops = tuple(dict.fromkeys((*declared, *caller_stops)))
        if len(stops) > MAX_STOP_TOKENS:
            raise InvalidInputError(
                f"{len(stops)} different stop tokens are asked for, with the model's own; "
                f"at most {MAX_STOP_TOKENS} are allowed",
                "stop_tokens",
            )
        return stops


def _token_id(metadata: Metadata, name: str, vocabulary_size: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    token = metadata.uint32_id(key)
    if token is not None and token >= vocabulary_size:
        raise MetadataError(f"{key} is {token}, outside the vocabulary of {vocabulary_size} tokens")
    return token


def _flag(metadata: Metadata, name: str) -> bool | None:
    key = f"tokenizer.ggml.{name}"
    return metadata.boolean(key) if key in metadata else None
