"""Conversations as token ids, with what each id counts in training.

The ids are those of the engine's own renderer and tokenizer. Answers count fully, from the first token that
the model itself would generate; what others say counts a little, system turns not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.chat import TEMPLATES, Control, Text
from engine.chat.rendering import END_THINK, IM_END, IM_START, THINK
from engine.tokenizer import Tokenizer
from training.corpus.conversation import Conversation

FORMAT = TEMPLATES["qwen3.5"]
ANSWER, CONTEXT, SYSTEM = 1.0, 0.1, 0.0
_OPENING = "assistant\n"


@dataclass(frozen=True)
class Sequence:
    """Ids of a conversation and the weight of each as a target."""

    ids: list[int]
    weights: list[float]


def text_of(conversation: Conversation) -> str:
    """A conversation as one text, last answer included."""
    options = replace(conversation.options, add_generation_prompt=False)
    return FORMAT.render(conversation.messages, options).flatten()


class Encoder:
    """Encodes conversations for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, conversation: Conversation) -> Sequence:
        """The whole conversation, last answer included."""
        options = replace(conversation.options, add_generation_prompt=False)
        self._sequence = Sequence([], [])
        self._weight, self._answering = SYSTEM, False
        before, text = "", ""
        for segment in FORMAT.render(conversation.messages, options).segments:
            if isinstance(segment, Text):
                text += segment.text
                continue
            self._text(text, before)
            text, before = "", segment.spelling
            self._control(segment)
        self._text(text, before)
        return self._sequence

    def _text(self, text: str, before: str) -> None:
        """Ordinary text, after the control token `before`."""
        if not text:
            return
        if before == IM_START:
            role = text.partition("\n")[0]
            self._weight = {"system": SYSTEM, "assistant": ANSWER}.get(role, CONTEXT)
            if role == "assistant":
                self._add(_OPENING, CONTEXT)
                text = text.removeprefix(_OPENING)
        elif before == THINK:
            self._answering = bool(text.strip())  # an empty block is the prompt's
            self._add("\n" if self._answering else text, CONTEXT)
            text = text.removeprefix("\n") if self._answering else ""
        elif before == END_THINK and not self._answering:
            self._add("\n\n", CONTEXT)
            text = text.removeprefix("\n\n")
        self._add(text, CONTEXT if before == IM_END else self._weight)

    def _control(self, control: Control) -> None:
        token = self.tokenizer.control_id(control.spelling)
        assert token is not None, control.spelling
        scaffold = control.spelling in (IM_START, THINK)
        scaffold = scaffold or (control.spelling == END_THINK and not self._answering)
        self._sequence.ids.append(token)
        self._sequence.weights.append(min(CONTEXT, self._weight) if scaffold else self._weight)

    def _add(self, text: str, weight: float) -> None:
        ids = self.tokenizer.encode(text)
        self._sequence.ids.extend(ids)
        self._sequence.weights.extend([weight] * len(ids))
