from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.artifact import Pin
from engine.catalogue import Conversation
from engine.chat import TEMPLATES, Message
from engine.errors import (
    ContextError,
    EngineError,
    HashMismatchError,
    InvalidInputError,
    LengthMismatchError,
    MetadataError,
    UnsupportedTemplateError,
)
from engine.swift import PreparedChat, SwiftChatSession
from engine.swift.chat_session import MAX_MESSAGE_BYTES, MAX_MESSAGES
from engine.tokenizer import Tokenizer
from tests.gguf_writer import F32
from tests.models import DATA, model_path, pin_of, transformer_file
from tests.vocabularies import metadata_of, small, tokenizer

STORIES = model_path("trained-qwen35-pq2_0-had")
CAPITAL = "What is the capital of France?"
GOLDEN = json.loads((DATA / "trained-qwen35.json").read_text())["greedy"]
THINK = 1022


@pytest.fixture(scope="module")
def chat() -> SwiftChatSession:
    """The trained model's conversations, from its verified header."""
    return SwiftChatSession.load(pin_of(STORIES), Conversation("chatml-think"))


def session_of(conversation: Conversation, template_sha256: str | None = None) -> SwiftChatSession:
    """A session over a small vocabulary, as if the file had a template with this hash."""
    tokens = tokenizer("smollm2")
    return SwiftChatSession(tokens, TEMPLATES["smollm2"], template_sha256, conversation, 512)


def test_count_and_prepare_are_the_golden_prompt(chat: SwiftChatSession) -> None:
    """Both are about the ids that the model was trained on; the stable part ends before the header."""
    ids = GOLDEN[CAPITAL]["prompt_ids"]
    messages = [Message("user", CAPITAL)]
    prepared = chat.prepare(messages, 8)
    assert list(prepared.tokens) == ids
    assert (prepared.output_tokens, ids[prepared.stable_prefix :][:2]) == (8, [1020, 288])
    assert chat.count(messages, 8) == len(ids) == 19


def test_facts(chat: SwiftChatSession) -> None:
    """Context, stops and the state of thinking are those of file and format."""
    assert chat.context == 2048  # the model's own, which is under 4096
    assert chat.template.name == "chatml-think"
    assert set(chat.stop_tokens) == {1019, 1021}  # <|endoftext|> and <|im_end|>
    assert not chat.starts_inside_think


def test_wishes_of_the_conversation() -> None:
    """With thinking on, prompts end inside a think block, and given reasoning is kept or not as laid down."""
    conversation = Conversation("chatml-think", enable_thinking=True, preserve_thinking=True, context=100)
    keeping = SwiftChatSession.load(pin_of(STORIES), conversation)
    dropping = SwiftChatSession.load(pin_of(STORIES), replace(conversation, preserve_thinking=False))
    messages = [
        Message("user", CAPITAL),
        Message("assistant", "Paris.", "The capital of France is Paris."),
        Message("user", CAPITAL),
    ]
    kept, dropped = (session.prepare(messages, 1).tokens for session in (keeping, dropping))
    assert keeping.starts_inside_think
    assert keeping.context == 100
    assert kept[-2:] == (THINK, 198)
    assert len(kept) > len(dropped)
    decode = keeping.tokenizer.vocabulary.decode
    assert decode(kept).endswith(b"<|im_start|>assistant\n<think>\n")
    assert b"<think>\nThe capital of France is Paris.\n</think>" in decode(kept)
    assert b"<think>\n\n</think>\n\nParis." in decode(dropped)


def test_an_own_set_of_stops() -> None:
    """Stops that are laid down join the end of sequence that the file declares."""
    assert set(session_of(Conversation(stop_tokens=(17,))).stop_tokens) == {17, 2}
    assert set(session_of(Conversation()).stop_tokens) == {0, 2}


def test_room_for_the_answer(chat: SwiftChatSession) -> None:
    """Prompt and answer together may fill the context, and not more."""
    messages = [Message("user", CAPITAL)]
    assert chat.count(messages, 2048 - 19) == 19
    for ask in (chat.count, chat.prepare):
        with pytest.raises(ContextError):
            ask(messages, 2048 - 18)
        with pytest.raises(InvalidInputError, match="max_tokens is 0"):
            ask(messages, 0)


def test_bounds_on_messages(chat: SwiftChatSession) -> None:
    """Too many messages and too much text in one are refused by their sizes, without the text."""
    assert (MAX_MESSAGES, MAX_MESSAGE_BYTES) == (4096, 262_144)
    with pytest.raises(InvalidInputError, match="4097 messages; at most 4096"):
        chat.count([Message("user", "x")] * 4097, 1)
    # Words of three bytes each, in content and reasoning together.
    message = Message("assistant", "é " * 60_000, "é " * 27_382)
    with pytest.raises(InvalidInputError, match=r"messages\[1\] has 262146 bytes of text") as caught:
        chat.count([Message("user", "x"), message], 1)
    assert "é" not in str(caught.value)
    with pytest.raises(ContextError):
        chat.count([Message("user", "x"), replace(message, content="é " * 59_999)], 1)


@pytest.mark.parametrize("messages", [[], [Message("user", "\ud800")], [Message("nobody", "x")]])  # type: ignore[arg-type]
def test_messages_that_cannot_be_rendered(chat: SwiftChatSession, messages: list[Message]) -> None:
    """An empty conversation, half a surrogate pair and an unknown role are refused."""
    with pytest.raises(InvalidInputError):
        chat.count(messages, 1)


def test_only_its_own_session_takes_a_prepared_chat(chat: SwiftChatSession) -> None:
    """Equal sessions are different, and so are copies and forgeries of what was prepared."""
    other = SwiftChatSession.load(pin_of(STORIES), Conversation("chatml-think"))
    prepared = chat.prepare([Message("user", CAPITAL)], 8)
    chat.check(prepared)
    with pytest.raises(InvalidInputError, match="another session"):
        other.check(prepared)
    for forged in (replace(prepared, output_tokens=9), PreparedChat(prepared.tokens, 8, 0)):
        with pytest.raises(InvalidInputError, match="another session"):
            chat.check(forged)


def test_the_file_is_verified() -> None:
    """A wrong length and a wrong hash are refused before anything of the file is used."""
    pin = pin_of(STORIES)
    with pytest.raises(LengthMismatchError):
        SwiftChatSession.load(Pin(pin.path, pin.nbytes + 1, pin.sha256), Conversation("chatml-think"))
    with pytest.raises(HashMismatchError):
        SwiftChatSession.load(Pin(pin.path, pin.nbytes, "0" * 64), Conversation("chatml-think"))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"vocabulary_size": 49_153}, MetadataError, "vocabulary of 49152 tokens, but 49153"),
        ({"template_sha256": "b" * 64}, UnsupportedTemplateError, f"template {'a' * 64}, but {'b' * 64}"),
        ({"stop_tokens": (49_152,)}, InvalidInputError, "stop token 49152"),
        ({"reasoning_effort": "xhigh"}, InvalidInputError, "reasoning_effort"),
        ({"enable_thinking": True}, InvalidInputError, "enable_thinking"),
    ],
)
def test_another_model_than_the_one_described(
    settings: dict[str, Any], error: type[EngineError], words: str
) -> None:
    """Vocabulary, template, stops and wishes must fit the file; both sides of a difference are named."""
    with pytest.raises(error, match=words):
        session_of(Conversation(**settings), "a" * 64)
    assert session_of(Conversation(vocabulary_size=49_152, template_sha256="a" * 64), "a" * 64).context == 512


def test_no_template_at_all() -> None:
    """A file without a template, and without a name for one, holds no conversations."""
    with pytest.raises(UnsupportedTemplateError, match="no known chat template"):
        SwiftChatSession.load(pin_of(STORIES), Conversation())
    with pytest.raises(UnsupportedTemplateError, match="no chat template, but"):
        SwiftChatSession.load(pin_of(STORIES), Conversation("chatml-think", template_sha256="b" * 64))


def test_the_template_in_the_file(tmp_path: Path) -> None:
    """It is recognised by its hash, and the hash that is laid down is compared with that of its text."""
    text = "{{ messages }}"
    writer = transformer_file("qwen3", F32).add("tokenizer.chat_template", "string", text)
    pin = pin_of(writer.write(tmp_path / "m.gguf"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    SwiftChatSession.load(pin, Conversation("chatml", template_sha256=digest))
    with pytest.raises(UnsupportedTemplateError, match=f"template {digest}, but 00"):
        SwiftChatSession.load(pin, Conversation("chatml", template_sha256="0" * 64))
    with pytest.raises(UnsupportedTemplateError, match="no known chat template"):
        SwiftChatSession.load(pin, Conversation())


def test_a_vocabulary_without_the_format() -> None:
    """A format whose control tokens the vocabulary lacks is refused at once, not at the first request."""
    tokens = Tokenizer.from_metadata(metadata_of(small(special=[("<|endoftext|>", 3)], eos=0)))
    with pytest.raises(UnsupportedTemplateError, match=r"<\|im_start\|>"):
        SwiftChatSession(tokens, TEMPLATES["chatml"], None, Conversation(), 512)
