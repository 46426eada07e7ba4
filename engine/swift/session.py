"""Answers to prepared conversations: one model, one seed, one sequence of state, text as it is generated.

An answer is a transaction. Text that was handed out stays provisional until `generate` returns; whatever
it raises instead (deadline, cancellation, a fault, the consumer's own exception), state and sampler are
then as before the call. Processes, pipes and clocks belong to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from engine.artifact import Pin, Progress
from engine.catalogue import Conversation
from engine.chat.display import shown
from engine.errors import InvalidInputError
from engine.memory_budget import default_memory_bytes
from engine.model import DEFAULT_ACTIVATION_BITS, Model, load_model
from engine.runtime import Cancellation, Finish, GenerationOptions, Runtime
from engine.sampling import SwiftSampler
from engine.swift.chat_session import PreparedChat, SwiftChatSession
from engine.text_output import Utf8Output
from engine.vocabulary import Vocabulary

SAMPLING = "swift"
DEFAULT_STATE_BYTES = 1 << 30
DEFAULT_CHECKPOINT_BYTES = 1 << 30
DEFAULT_OUTPUT_BYTES = 4 << 20

OnText = Callable[[str], object]


@dataclass(frozen=True)
class SwiftCompletion:
    """A committed answer: its whole text, why it ended, and its counts of tokens.

    `rest` is the end of the text that no callback was given: U+FFFD if the last character was never
    completed. `cached_tokens` of the prompt were in the state already.
    """

    text: str
    rest: str
    finish: Finish
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int


class SwiftSession:
    """Not thread-safe: one thread makes all calls.

    Budgets are the conversation's, or else 1 GiB for the state, 1 GiB for checkpoints and 4 MiB for the
    text of one answer. Raises what `SwiftChatSession`, `SwiftSampler` and `Runtime` raise.
    """

    def __init__(self, model: Model, conversation: Conversation, seed: int) -> None:
        if conversation.sampling not in (None, SAMPLING):
            raise InvalidInputError(f"the conversation asks for another sampler than {SAMPLING}", "sampling")
        self.model = model
        self.chat = SwiftChatSession.of_model(model, conversation)
        self.output_bytes = conversation.output_bytes or DEFAULT_OUTPUT_BYTES
        self._vocabulary = model.tokenizer.vocabulary
        self._first_sampler = SwiftSampler(seed, self._vocabulary.size)
        self._sampler = self._first_sampler.clone()
        self._runtime = Runtime(
            model.decoder,
            checkpoint_bytes=conversation.checkpoint_bytes or DEFAULT_CHECKPOINT_BYTES,
            state_bytes=conversation.state_bytes or DEFAULT_STATE_BYTES,
            masked=sorted(self._vocabulary.unused),
        )

    @classmethod
    def load(
        cls,
        pin: Pin,
        conversation: Conversation,
        seed: int,
        *,
        activation_bits: int = DEFAULT_ACTIVATION_BITS,
        threads: int | None = None,
        kernel: str | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Verify and load the model that `pin` names, within the conversation's budget or the default one."""
        model = load_model(
            pin,
            memory_bytes=conversation.model_bytes or default_memory_bytes(pin.nbytes),
            context=conversation.context,
            activation_bits=activation_bits,
            threads=threads,
            kernel=kernel,
            chat_template=conversation.chat_template,
            progress=progress,
        )
        return cls(model, conversation, seed)

    def describe_sampling(self) -> dict[str, Any]:
        """The sampler's settings and seed as a JSON object."""
        return self._sampler.describe()

    def generate(
        self,
        prepared: PreparedChat,
        *,
        deadline: float,
        cancellation: Cancellation | None = None,
        on_text: OnText | None = None,
    ) -> SwiftCompletion:
        """Answer what this session's `chat` prepared, until `deadline`, a `time.monotonic()` value.

        `on_text` gets the text piece by piece. The text holds no control tokens but the think tags; an
        answer that outgrows its budget of bytes ends there, as one of full length does.
        """
        self.chat.check(prepared)
        output = _Output(self._vocabulary, self.output_bytes, on_text)
        done = self._runtime.generate_sampled_until(
            prepared.tokens,
            GenerationOptions(
                prepared.output_tokens, self.chat.stop_tokens, stable_prefix=prepared.stable_prefix
            ),
            deadline,
            self._sampler,
            cancellation=cancellation,
            on_token=output.on_token,
        )
        rest = output.finish()
        return SwiftCompletion(
            text="".join(output.parts) + rest,
            rest=rest,
            finish="length" if output.full else done.finish,
            prompt_tokens=done.prompt_tokens,
            output_tokens=len(done.tokens),
            cached_tokens=done.reused_tokens,
        )

    def reset(self) -> None:
        """Forget every conversation and begin the draws again: as the session was when it was made."""
        self._runtime.reset()
        self._sampler.restore(self._first_sampler)


class _Output:
    """The text of one answer as it grows."""

    def __init__(self, vocabulary: Vocabulary, limit: int, on_text: OnText | None) -> None:
        self.parts: list[str] = []
        self.full = False
        self._vocabulary = vocabulary
        self._utf8 = Utf8Output()
        self._left = limit - len("\ufffd".encode())  # which may have to stand for an unfinished character
        self._on_text = on_text

    def on_token(self, token: int) -> bool:
        """Take one token; True ends the answer, without the text that is too much."""
        text = self._utf8.push(shown(self._vocabulary, token))
        self._left -= len(text.encode())
        if self._left < 0:
            self.full = True
        elif text:
            self.parts.append(text)
            if self._on_text is not None:
                self._on_text(text)
        return self.full

    def finish(self) -> str:
        """What an unfinished character has become."""
        return "" if self.full else self._utf8.finish()
