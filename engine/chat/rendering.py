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
TOOL_CALL = "<tool_call>"
END_TOOL_CALL = "</tool_call>"
TOOL_RESPONSE = "<tool_response>"
END_TOOL_RESPONSE = "</tool_response>"


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
        self.text(text)
        self.close()

    def open(self, role: str) -> None:
        """Begin a turn."""
        self.control(IM_START)
        self.text(f"{role}\n")

    def close(self) -> None:
        """End a turn."""
        self.control(IM_END)
        self.text("\n")

    def assistant(self, text: str, reasoning: str | None, calls: Sequence[str] = ()) -> None:
        """A whole assistant turn; with reasoning (which may be empty), its think block goes before.

        `calls` are the insides of tool calls, which end the turn.
        """
        self.open("assistant")
        if reasoning is not None:
            self.think_block(reasoning)
        self.text(text)
        for index, call in enumerate(calls):
            self.text("\n" if index else "\n\n" if text else "")
            self._enclosed(TOOL_CALL, call, END_TOOL_CALL)
        self.close()

    def tool_results(self, results: Sequence[str]) -> None:
        """A whole user turn that holds the results of calls."""
        self.open("user")
        for index, result in enumerate(results):
            self.text("\n" if index else "")
            self._enclosed(TOOL_RESPONSE, result, END_TOOL_RESPONSE)
        self.close()

    def think_block(self, reasoning: str) -> None:
        """A closed think block."""
        self._enclosed(THINK, reasoning, END_THINK)
        self.text("\n\n")

    def _enclosed(self, begin: str, text: str, end: str) -> None:
        self.control(begin)
        self.text(f"\n{text}\n")
        self.control(end)

    def finish(self, options: ChatOptions, thinking: bool | None) -> RenderedChat:
        """Add the generation prompt where asked for: with a think block opened (True), closed and empty
        (False), or without one (None).
        """
        history = len(self._segments)
        if not options.add_generation_prompt:
            return RenderedChat(tuple(self._segments), history, thinking=False)
        self.open("assistant")
        if thinking:
            self.control(THINK)
            self.text("\n")
        elif thinking is False:
            self.think_block("")
        return RenderedChat(tuple(self._segments), history, thinking=bool(thinking))

    def control(self, spelling: str) -> None:
        """One control token."""
        self._segments.append(Control(spelling))

    def text(self, text: str) -> None:
        """Literal text inside the open turn."""
        if text:
            self._segments.append(Text(text))


class ChatTemplate(ABC):
    """A built-in renderer. `name` is what `--chat-template` calls it."""

    name: str

    @abstractmethod
    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """The prompt for these messages. Raises `InvalidInputError` naming what cannot be rendered."""
