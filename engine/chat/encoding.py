"""A rendered conversation to token ids.

Each control segment becomes the one special token of that spelling; the text between two of them is
encoded in one go and literally, so ids equal those of the flattened prompt and no text becomes special.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.chat.rendering import IM_END, RenderedChat, Segment, Text
from engine.errors import InvalidInputError, UnsupportedTemplateError
from engine.tokenizer import MAX_INPUT_BYTES, Tokenizer

END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True)
class EncodedChat:
    """Ids of a prompt. The first `stable_prefix` precede the generation prompt.

    `turn_ends` are the ids that end a turn in this format, for the caller's stop set: a file's declared
    end-of-sequence id is usually, but not always, all of them.
    """

    tokens: list[int]
    stable_prefix: int
    turn_ends: tuple[int, ...]


def encode_chat(tokenizer: Tokenizer, chat: RenderedChat) -> EncodedChat:
    """Raises `UnsupportedTemplateError` where the vocabulary lacks a control token of the format."""
    size = sum(len(part.text.encode("utf-8")) for part in chat.segments if isinstance(part, Text))
    if size > MAX_INPUT_BYTES:
        raise InvalidInputError(
            f"the messages hold {size} bytes of text; at most {MAX_INPUT_BYTES} are allowed", "messages"
        )
    history = _encode(tokenizer, chat.segments[: chat.history_segments])
    prompt = _encode(tokenizer, chat.segments[chat.history_segments :])
    ends = (tokenizer.control_id(spelling) for spelling in (IM_END, END_OF_TEXT))
    return EncodedChat(
        tokens=history + prompt,
        stable_prefix=len(history),
        turn_ends=tuple(end for end in ends if end is not None),
    )


def _encode(tokenizer: Tokenizer, segments: tuple[Segment, ...]) -> list[int]:
    ids: list[int] = []
    text = ""
    for segment in segments:
        if isinstance(segment, Text):
            text += segment.text
            continue
        ids.extend(tokenizer.encode(text))
        ids.append(_control_id(tokenizer, segment.spelling))
        text = ""
    return ids + tokenizer.encode(text)


def _control_id(tokenizer: Tokenizer, spelling: str) -> int:
    token = tokenizer.control_id(spelling)
    if token is None:
        raise UnsupportedTemplateError(
            f"the chat template needs the special token {spelling!r}, which the model's vocabulary lacks; "
            "choose another one with --chat-template NAME"
        )
    return token
