"""The real backend: one loaded model of the engine with one runtime, behind the server's protocol."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from engine.artifact import Pin, Progress
from engine.capabilities import capabilities
from engine.chat.display import shown
from engine.chat.encoding import encode_chat
from engine.chat.messages import ChatOptions, Message
from engine.chat.rendering import THINK
from engine.errors import UnsupportedTemplateError
from engine.huge_pages import huge_page_bytes
from engine.kernels import FAILED_LEVELS
from engine.model import Model, load_model
from engine.runtime import Cancellation, Completion, GenerationOptions, Runtime
from engine.sampling import Sampler
from engine.self_test import check_kernel
from server.backend import ChatPrompt, InsertSpecial, ModelFacts, Reasoning, SpecialInput
from server.logs import log_event


@dataclass(frozen=True)
class ModelOptions:
    """Which model to load and with what: budgets in bytes, context in tokens, more ids that end an answer."""

    pin: Pin
    memory_bytes: int
    state_bytes: int | None
    checkpoint_bytes: int
    context: int | None
    activation_bits: int
    threads: int | None
    kernel: str | None
    chat_template: str | None
    stop_tokens: tuple[int, ...] = ()


def load_backend(options: ModelOptions, progress: Progress) -> ModelBackend:
    """Test the kernel, load the model and reserve its state; raises what the engine raises."""
    check_kernel(options.kernel, options.threads, options.activation_bits)
    model = load_model(
        options.pin,
        memory_bytes=options.memory_bytes,
        context=options.context,
        activation_bits=options.activation_bits,
        threads=options.threads,
        kernel=options.kernel,
        chat_template=options.chat_template,
        progress=progress,
    )
    runtime = Runtime(
        model.decoder,
        checkpoint_bytes=options.checkpoint_bytes,
        state_bytes=options.state_bytes,
        masked=sorted(model.tokenizer.vocabulary.unused),
    )
    for name in FAILED_LEVELS:
        log_event(
            "kernel_failed", level=logging.WARNING, message=f"{name} gives wrong results on this processor"
        )
    return ModelBackend(model, runtime, options.stop_tokens)


class ModelBackend:
    """Implements `Backend`."""

    def __init__(self, model: Model, runtime: Runtime, stop_tokens: tuple[int, ...] = ()) -> None:
        self._model = model
        self._runtime = runtime
        self._stops = model.tokenizer.special.stop_set(stop_tokens)
        self._capabilities = capabilities()

    @cached_property
    def facts(self) -> ModelFacts:
        """What the model is."""
        identity = self._model.identity
        return ModelFacts(
            sha256=identity.sha256,
            nbytes=identity.nbytes,
            architecture=identity.architecture,
            name=identity.name,
            contract=identity.contract,
            context=self._runtime.context,
            vocabulary_size=self._model.tokenizer.vocabulary.size,
            template=self._model.chat.name if self._model.chat is not None else None,
            kernel=self._model.kernels.name,
            threads=self._model.kernels.threads,
            huge_page_bytes=huge_page_bytes(),
        )

    @property
    def poisoned(self) -> bool:
        """Whether the state is lost."""
        return self._runtime.poisoned

    def encode(self, text: str, special_input: SpecialInput, insert_special: InsertSpecial) -> list[int]:
        """Token ids of a text."""
        return self._model.tokenizer.encode_with_special_tokens(text, special_input, insert_special)

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> ChatPrompt:
        """Token ids of a conversation."""
        if self._model.chat is None:
            raise UnsupportedTemplateError("the model has no known chat template")
        rendered = self._model.chat.render(messages, options)
        encoded = encode_chat(self._model.tokenizer, rendered)
        reasoning: Reasoning = "off"
        if rendered.thinking:
            reasoning = "inside"
        elif self._thinks:
            reasoning = "outside"
        return ChatPrompt(encoded.tokens, encoded.stable_prefix, encoded.turn_ends, reasoning)

    def stop_tokens(self, turn_ends: Sequence[int]) -> tuple[int, ...]:
        """The ends of generation that the file and its catalogue entry declare, and the chat format's."""
        return self._model.tokenizer.special.stop_set((*self._stops, *turn_ends))

    def decode(self, tokens: Sequence[int]) -> bytes:
        """The exact bytes of all tokens."""
        return self._model.tokenizer.vocabulary.decode(tokens)

    def shown(self, token: int) -> bytes:
        """A token's bytes; nothing for control tokens, but for the tags around reasoning."""
        return shown(self._model.tokenizer.vocabulary, token)

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
        """Answer a prompt."""
        return self._runtime.generate_sampled_until(
            prompt,
            options,
            deadline,
            sampler,
            cancellation=cancellation,
            on_token=on_token,
            on_prefill=on_prefill,
        )

    def reset(self) -> None:
        """Forget all state."""
        self._runtime.reset()

    def capabilities(self) -> dict[str, Any]:
        """The engine's record."""
        return self._capabilities

    @cached_property
    def _thinks(self) -> bool:
        """Whether the vocabulary has the tags around reasoning."""
        return self._model.tokenizer.control_id(THINK) is not None
