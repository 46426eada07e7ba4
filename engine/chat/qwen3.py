"""The Qwen3 conversation format, and the copy of it in the small Bonsai models.

Reasoning of answers before the last question is dropped. The model opens its think block by itself;
switching thinking off puts an empty block into the prompt. Tools are not rendered.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.chat.messages import ChatOptions, Message, check_messages
from engine.chat.rendering import END_THINK, THINK, ChatTemplate, RenderedChat, Turns


class Qwen3(ChatTemplate):
    """`never_thinks` is the variant whose generation prompt always has the empty think block."""

    def __init__(self, name: str, *, never_thinks: bool = False) -> None:
        self.name = name
        self._never_thinks = never_thinks

    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """Any order of roles; a system message anywhere is a turn of its own."""
        check_messages(messages)
        options.refuse(self.name, "reasoning_effort", "preserve_thinking", "tools")
        if self._never_thinks:
            options.refuse(self.name, "enable_thinking")
        turns = Turns()
        last_query = last_query_index(messages, [message.content for message in messages])
        for index, message in enumerate(messages):
            if message.role != "assistant":
                turns.turn(message.role, message.content)
                continue
            reasoning, content = reasoning_and_content(message, message.content)
            is_last = index == len(messages) - 1
            if last_query is not None and index > last_query and (is_last or reasoning):
                turns.assistant(content.lstrip("\n"), reasoning.strip("\n"))
            else:
                turns.assistant(content, None)
        no_thinking = self._never_thinks or options.enable_thinking is False
        return turns.finish(options, False if no_thinking else None)


def last_query_index(messages: Sequence[Message], contents: Sequence[str]) -> int | None:
    """Index of the last user message whose content is not a wrapped tool response, if there is one."""
    for index in range(len(messages) - 1, -1, -1):
        content = contents[index]
        wrapped = content.startswith("<tool_response>") and content.endswith("</tool_response>")
        if messages[index].role == "user" and not wrapped:
            return index
    return None


def reasoning_and_content(message: Message, content: str) -> tuple[str, str]:
    """The reasoning of an assistant message, from its own field or else from a block in its content."""
    if message.reasoning_content is not None:
        return message.reasoning_content, content
    before, tag, _ = content.partition(END_THINK)
    if not tag:
        return "", content
    reasoning = before.rstrip("\n").split(THINK)[-1].lstrip("\n")
    return reasoning, content.split(END_THINK)[-1].lstrip("\n")
