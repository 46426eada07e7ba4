"""Plain ChatML: every message is one turn, unchanged.

Variants put a default system message first when there is none, or write a think block in every assistant
turn. Message order is not restricted.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.chat.messages import ChatOptions, Message, check_messages
from engine.chat.rendering import ChatTemplate, RenderedChat, Turns


class ChatMl(ChatTemplate):
    """`think_blocks` is for models whose every answer begins with a (mostly empty) think block."""

    def __init__(self, name: str, default_system: str | None = None, *, think_blocks: bool = False) -> None:
        self.name = name
        self._default_system = default_system
        self._think_blocks = think_blocks

    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """The messages as they are; thinking is off unless the format has it and the caller wants it."""
        check_messages(messages)
        options.refuse(self.name, "reasoning_effort", "tools")
        if not self._think_blocks:
            options.refuse(self.name, "enable_thinking", "preserve_thinking")
        turns = Turns()
        if self._default_system is not None and messages[0].role != "system":
            turns.turn("system", self._default_system)
        for message in messages:
            if message.role == "assistant" and self._think_blocks:
                keep = options.preserve_thinking is not False
                turns.assistant(message.content, (message.reasoning_content or "") if keep else "")
            else:
                turns.turn(message.role, message.content)
        return turns.finish(options, bool(options.enable_thinking) if self._think_blocks else None)
