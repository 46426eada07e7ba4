"""Conversations to token ids for one verified model, by the settings of its catalogue entry.

A session renders and tokenises; it holds no weights, no state and no request. What it counts and what it
prepares are the same ids, and only the session that prepared a conversation says that it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from weakref import WeakSet

from engine.artifact import Pin, Progress
from engine.catalogue import Conversation
from engine.chat.encoding import EncodedChat, encode_chat
from engine.chat.messages import ChatOptions, Message
from engine.chat.rendering import ChatTemplate
from engine.errors import ContextError, InvalidInputError, MetadataError, UnsupportedTemplateError
from engine.gguf import MAX_HEADER_BYTES
from engine.model import Model, choose_template, embedded_template_sha256, resolve_context
from engine.tokenizer import Tokenizer
from engine.verified_metadata import read_metadata

MAX_MESSAGES = 4096
MAX_MESSAGE_BYTES = 262_144  # content and reasoning of one message together, as UTF-8


@dataclass(frozen=True, eq=False)
class PreparedChat:
    """Ids of a rendered conversation, with room in the context for `output_tokens` after them.

    The first `stable_prefix` ids are those that the conversation's next turn begins with.
    """

    tokens: tuple[int, ...]
    output_tokens: int
    stable_prefix: int


class SwiftChatSession:
    """Renders and tokenises for one model, whose `context` is in tokens.

    `stop_tokens` end an answer; `starts_inside_think` says that a prompt leaves a think block open, so
    that an answer begins with reasoning. Raises `MetadataError`, `UnsupportedTemplateError` or
    `InvalidInputError` where the model is not the one that `conversation` describes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        template_sha256: str | None,
        conversation: Conversation,
        context: int,
    ) -> None:
        _check_vocabulary(conversation, tokenizer)
        _check_template(conversation, template_sha256)
        if template is None:
            raise UnsupportedTemplateError("the model has no known chat template, and none is named for it")
        self.tokenizer = tokenizer
        self.template = template
        self.context = context
        self._options = ChatOptions(
            enable_thinking=conversation.enable_thinking,
            reasoning_effort=conversation.reasoning_effort,
            preserve_thinking=conversation.preserve_thinking,
        )
        self._prepared: WeakSet[PreparedChat] = WeakSet()
        # A first conversation shows whether the settings fit the renderer and its tokens the vocabulary.
        first = template.render([Message("user", "")], self._options)
        ends = encode_chat(tokenizer, first).turn_ends
        self.starts_inside_think = first.thinking
        self.stop_tokens = tokenizer.special.stop_set(conversation.stop_tokens or ends)

    @classmethod
    def load(
        cls,
        pin: Pin,
        conversation: Conversation,
        metadata_bytes: int = MAX_HEADER_BYTES,
        progress: Progress | None = None,
    ) -> Self:
        """Verify the whole file that `pin` names and keep what conversations need of it, which is no tensor.

        `metadata_bytes` bounds the part of the file that is held meanwhile. Where the conversation has no
        context, it is the model's, at most 4096 tokens. Raises the errors of `artifact`, `gguf` and
        `tokenizer` too.
        """
        metadata = read_metadata(pin, metadata_bytes, progress)
        length = resolve_context(metadata, metadata.string("general.architecture"), conversation.context)
        return cls(
            Tokenizer.from_metadata(metadata),
            choose_template(metadata, conversation.chat_template),
            embedded_template_sha256(metadata),
            conversation,
            length,
        )

    @classmethod
    def of_model(cls, model: Model, conversation: Conversation) -> Self:
        """The session of a model that is loaded, and so verified, already."""
        context = model.decoder.context
        return cls(model.tokenizer, model.chat, model.template_sha256, conversation, context)

    def count(self, messages: Sequence[Message], max_tokens: int) -> int:
        """The number of prompt tokens that `prepare` would give; raises what it raises."""
        return len(self._encode(messages, max_tokens).tokens)

    def prepare(self, messages: Sequence[Message], max_tokens: int) -> PreparedChat:
        """The conversation as ids, to be answered with at most `max_tokens` tokens.

        Raises `InvalidInputError` for messages that cannot be rendered or exceed the bounds above, and
        `ContextError` where prompt and answer do not fit the context.
        """
        encoded = self._encode(messages, max_tokens)
        prepared = PreparedChat(tuple(encoded.tokens), max_tokens, encoded.stable_prefix)
        self._prepared.add(prepared)
        return prepared

    def check(self, prepared: PreparedChat) -> None:
        """Raise `InvalidInputError` unless this very session made `prepared`."""
        if prepared not in self._prepared:
            raise InvalidInputError("the conversation was prepared by another session", "prepared")

    def _encode(self, messages: Sequence[Message], max_tokens: int) -> EncodedChat:
        if max_tokens < 1:
            raise InvalidInputError(f"max_tokens is {max_tokens}; expected at least 1", "max_tokens")
        _check_sizes(messages)
        encoded = encode_chat(self.tokenizer, self.template.render(messages, self._options))
        if len(encoded.tokens) + max_tokens > self.context:
            raise ContextError(len(encoded.tokens), max_tokens, self.context)
        return encoded


def _check_vocabulary(conversation: Conversation, tokenizer: Tokenizer) -> None:
    found, expected = tokenizer.vocabulary.size, conversation.vocabulary_size
    if expected not in (None, found):
        raise MetadataError(f"the model has a vocabulary of {found} tokens, but {expected} are expected")


def _check_template(conversation: Conversation, template_sha256: str | None) -> None:
    expected = conversation.template_sha256
    if expected not in (None, template_sha256):
        found = "no chat template" if template_sha256 is None else f"the chat template {template_sha256}"
        raise UnsupportedTemplateError(f"the model file has {found}, but {expected} (SHA-256) is expected")


def _check_sizes(messages: Sequence[Message]) -> None:
    if len(messages) > MAX_MESSAGES:
        raise InvalidInputError(
            f"the conversation has {len(messages)} messages; at most {MAX_MESSAGES} are allowed", "messages"
        )
    for index, message in enumerate(messages):
        text = message.content + (message.reasoning_content or "")
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_MESSAGE_BYTES:
            raise InvalidInputError(
                f"messages[{index}] has {size} bytes of text; at most {MAX_MESSAGE_BYTES} are allowed",
                f"messages[{index}]",
            )
