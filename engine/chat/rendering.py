"""A rendered conversation: control tokens and literal text kept apart until the very end.

Only renderers write `Control` segments, and only they decide which; whatever a user wrote is `Text`, and
text is never searched for special tokens. So no message can open, close or forge a turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from engine.chat.messages import ChatOptions, Message

IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
THINK = "<think>"
END_THINK = "</think>"


@dataclass(frozen=True)
class Control:
    """Becomes exactly one control or user-defined token, the one with this spelling."""

    spelling: str


@dataclass(frozen=True)
class Text:
    """Becomes ordinary tokens, whatever it spells."""

    text: str


Segment = Control | Text


@dataclass(frozen=True)
class RenderedChat:
    """Segments of a prompt; the first `history_segments` of them precede the generation prompt.

    `thinking` says that the generation prompt leaves a think block open: the output starts inside it.
    """

    segments: tuple[Segment, ...]
    history_segments: int
    thinking: bool

    def flatten(self) -> str:
        """The prompt as one string, for showing to people; encoding it again is not safe."""
        return "".join(
            segment.spelling if isinstance(segment, Control) else segment.text for segment in self.segments
        )


class Turns:
    """Collects the turns of a ChatML conversation."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def turn(self, role: str, text: str) -> None:
        """A whole turn of plain text."""
        self.open(role)
        self._text(text)
        self.close()

    def open(self, role: str) -> None:
        """Begin a turn."""
        self._segments.append(Control(IM_START))
        self._text(f"{role}\n")

    def close(self) -> None:
        """End a turn."""
        self._segments.append(Control(IM_END))
        self._text("\n")

    def assistant(self, text: str, reasoning: str | None) -> None:
        """A whole assistant turn; with reasoning (which may be empty), its think block goes before."""
        self.open("assistant")
        if reasoning is not None:
            self.think_block(reasoning)
        self._text(text)
        self.close()

    def think_block(self, reasoning: str) -> None:
        """A closed think block."""
        self.open_think()
        self._text(f"{reasoning}\n")
        self._segments.append(Control(END_THINK))
        self._text("\n\n")

    def open_think(self) -> None:
        """The beginning of a think block."""
        self._segments.append(Control(THINK))
        self._text("\n")

    def finish(self, options: ChatOptions, thinking: bool | None) -> RenderedChat:
        """Add the generation prompt where asked for: with a think block opened (True), closed and empty
        (False), or without one (None).
        """
        history = len(self._segments)
        if not options.add_generation_prompt:
            return RenderedChat(tuple(self._segments), history, thinking=False)
        self.open("assistant")
        if thinking:
            self.open_think()
        elif thinking is False:
            self.think_block("")
        return RenderedChat(tuple(self._segments), history, thinking=bool(thinking))

    def _text(self, text: str) -> None:
        if text:
            self._segments.append(Text(text))


class ChatTemplate(ABC):
    """A built-in renderer. `name` is what `--chat-template` calls it."""

    name: str

    @abstractmethod
    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """The prompt for these messages. Raises `InvalidInputError` naming what cannot be rendered."""
