"""What the server needs of a loaded model, as a narrow protocol: text to ids, ids to text, generate.

The real one is in `model_backend`; tests drive the same server with a scripted one. All methods but
`generate` and `reset` may be called from any thread; those two only from the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from engine.chat.messages import ChatOptions, Message
from engine.runtime import Cancellation, Completion, GenerationOptions
from engine.sampling import Sampler

SpecialInput = Literal["literal", "parse"]
InsertSpecial = Literal["none", "model"]
Reasoning = Literal["off", "outside", "inside"]


@dataclass(frozen=True)
class ModelFacts:
    """Identity and sizes of the served model; `template` is None if it has no known chat format."""

    sha256: str
    nbytes: int
    architecture: str
    name: str
    contract: str
    context: int
    vocabulary_size: int
    template: str | None
    kernel: str
    threads: int
    huge_page_bytes: int | None


@dataclass(frozen=True)
class ChatPrompt:
    """A conversation as token ids, where its stable part ends, and where its answer begins."""

    tokens: list[int]
    stable_prefix: int
    turn_ends: tuple[int, ...]
    reasoning: Reasoning


class Backend(Protocol):
    """A loaded model."""

    @property
    def facts(self) -> ModelFacts:
        """What the model is."""

    @property
    def poisoned(self) -> bool:
        """Whether only `reset` can make it usable again."""

    def encode(self, text: str, special_input: SpecialInput, insert_special: InsertSpecial) -> list[int]:
        """Token ids of a text."""

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> ChatPrompt:
        """Token ids of a conversation; `UnsupportedTemplateError` without a known chat format."""

    def stop_tokens(self, turn_ends: Sequence[int]) -> tuple[int, ...]:
        """The ids that end an answer: the model's own and `turn_ends`."""

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The exact bytes of all tokens."""

    def shown(self, token: int) -> bytes:
        """What a generated token adds to an answer's text; control tokens add nothing."""

    def generate(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        *,
        sampler: Sampler,
        cancellation: Cancellation,
        deadline: float,
        on_token: Callable[[int], bool],
        on_prefill: Callable[[int, int], None],
    ) -> Completion:
        """Answer a prompt, as `engine.runtime.Runtime.generate_sampled_until` does."""

    def reset(self) -> None:
        """Forget all state."""

    def capabilities(self) -> dict[str, Any]:
        """What the engine can do, as a JSON object."""
