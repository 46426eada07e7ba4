"""The Qwen3.5 conversation format and its successors 3.6 and 3.8 (Bonsai 27B and Bonsai 2 27B).

Contents are trimmed, the system message comes first, and the prompt opens the think block for the model.
3.6 can keep the reasoning of earlier answers; 3.8 does so by default and states a reasoning effort.
Tools are not rendered.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.chat.messages import ChatOptions, Message, check_messages
from engine.chat.qwen3 import last_query_index, reasoning_and_content
from engine.chat.rendering import ChatTemplate, RenderedChat, Turns
from engine.errors import InvalidInputError

# What the 3.8 format says to the model, for each effort that it knows; the first is its default.
EFFORTS = {
    "xhigh": (
        "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
        "assumptions, consider plausible alternatives, and prioritize correctness, consistency, and "
        "clarity in the final answer."
    ),
    "medium": "",
    "low": (
        "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the "
        "conclusion without unnecessary elaboration."
    ),
}


class Qwen35(ChatTemplate):
    """Qwen3.5; with `can_preserve`, Qwen3.6."""

    def __init__(self, name: str, *, can_preserve: bool = False) -> None:
        self.name = name
        self._can_preserve = can_preserve

    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """A system message only first; at least one message must be a user's own."""
        check_messages(messages)
        options.refuse(self.name, "reasoning_effort")
        if not self._can_preserve:
            options.refuse(self.name, "preserve_thinking")
        turns = Turns()
        if messages[0].role == "system":
            turns.turn("system", messages[0].content.strip())
        last_query = _check_order(messages)
        for index, message in enumerate(messages):
            content = message.content.strip()
            if message.role == "user":
                turns.turn("user", content)
            elif message.role == "assistant":
                reasoning, content = reasoning_and_content(message, content)
                keep = bool(options.preserve_thinking) or index > last_query
                turns.assistant(content, reasoning.strip() if keep else None)
        return turns.finish(options, options.enable_thinking is not False)


class Qwen38(ChatTemplate):
    """Qwen3.8: a reasoning effort, and reasoning only from its own field, preserved by default."""

    name = "qwen3.8"

    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """As Qwen3.5; while thinking is on, the effort's sentence begins the system turn."""
        check_messages(messages)
        thinking = options.enable_thinking is not False
        effort = _effort_sentence(options.reasoning_effort)
        system = messages[0].content.strip() if messages[0].role == "system" else ""
        preamble = [part for part in (effort if thinking else "", system) if part]
        turns = Turns()
        if preamble:
            turns.turn("system", "\n\n".join(preamble))
        last_query = _check_order(messages)
        for index, message in enumerate(messages):
            content = message.content.strip()
            if message.role == "user":
                turns.turn("user", content)
            elif message.role == "assistant":
                keep = options.preserve_thinking is not False or index > last_query
                turns.assistant(content, (message.reasoning_content or "").strip() if keep else None)
        return turns.finish(options, thinking)


def _check_order(messages: Sequence[Message]) -> int:
    """Refuse orders that these formats do not have; the index of the last question."""
    for index, message in enumerate(messages):
        if message.role == "system" and index > 0:
            path = f"messages[{index}]"
            raise InvalidInputError(f"{path} is a system message; only the first one may be", f"{path}.role")
    last_query = last_query_index(messages, [message.content.strip() for message in messages])
    if last_query is None:
        raise InvalidInputError("messages must hold a user message", "messages")
    return last_query


def _effort_sentence(effort: str | None) -> str:
    if effort is None:
        return next(iter(EFFORTS.values()))
    if effort not in EFFORTS:
        raise InvalidInputError(f"reasoning_effort must be one of {', '.join(EFFORTS)}", "reasoning_effort")
    return EFFORTS[effort]
