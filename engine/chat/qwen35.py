"""The Qwen3.5 conversation format and its successors 3.6 and 3.8 (Bonsai 27B and Bonsai 2 27B).

Contents are trimmed, the system message comes first, and the prompt opens the think block for the model.
3.6 can keep the reasoning of earlier answers; 3.8 does so by default and states a reasoning effort.
Tools are described in the system turn as JSON and called in a form like XML; results are a user's turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from engine.chat.messages import ChatOptions, Message, ToolCall, check_messages, json_text
from engine.chat.qwen3 import last_query_index, reasoning_and_content
from engine.chat.rendering import END_TOOL_CALL, TOOL_CALL, ChatTemplate, RenderedChat, Turns
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


# What these formats say to a model that has tools, around the tools themselves.
TOOLS_HEADER = "# Tools\n\nYou have access to the following functions:\n\n<tools>\n"
TOOLS_FOOTER = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\n"
    "multiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be "
    "nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function "
    "call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge "
    "and do not tell the user about function calls\n</IMPORTANT>"
)


class Qwen35(ChatTemplate):
    """Qwen3.5; with `can_preserve`, Qwen3.6."""

    def __init__(self, name: str, *, can_preserve: bool = False) -> None:
        self.name = name
        self._can_preserve = can_preserve

    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """A system message only first; at least one message must be a user's own."""
        check_messages(messages, tools=True)
        options.refuse(self.name, "reasoning_effort")
        if not self._can_preserve:
            options.refuse(self.name, "preserve_thinking")
        turns = Turns()
        if options.tools:
            _write_tools(turns, "", options.tools, _system_text(messages))
        elif messages[0].role == "system":
            turns.turn("system", _system_text(messages))
        last_query = _check_order(messages)

        def write_answer(index: int, message: Message) -> None:
            reasoning, content = reasoning_and_content(message, message.content.strip())
            keep = bool(options.preserve_thinking) or index > last_query
            calls = _calls(message, index, _value if self._can_preserve else _old_value)
            turns.assistant(content, reasoning.strip() if keep else None, calls)

        _write_messages(turns, messages, write_answer)
        return turns.finish(options, options.enable_thinking is not False)


class Qwen38(ChatTemplate):
    """Qwen3.8: a reasoning effort, and reasoning only from its own field, preserved by default."""

    name = "qwen3.8"

    def render(self, messages: Sequence[Message], options: ChatOptions) -> RenderedChat:
        """As Qwen3.6; while thinking is on, the effort's sentence begins the system turn."""
        check_messages(messages, tools=True)
        thinking = options.enable_thinking is not False
        effort = _effort_sentence(options.reasoning_effort)
        turns, effort, system = Turns(), effort if thinking else "", _system_text(messages)
        if options.tools:
            _write_tools(turns, effort, options.tools, system)
        elif effort or system:
            turns.turn("system", "\n\n".join(part for part in (effort, system) if part))
        last_query = _check_order(messages)

        def write_answer(index: int, message: Message) -> None:
            keep = options.preserve_thinking is not False or index > last_query
            reasoning = (message.reasoning_content or "").strip() if keep else None
            turns.assistant(message.content.strip(), reasoning, _calls(message, index, _value))

        _write_messages(turns, messages, write_answer)
        return turns.finish(options, thinking)


def _system_text(messages: Sequence[Message]) -> str:
    return messages[0].content.strip() if messages[0].role == "system" else ""


def _write_tools(turns: Turns, effort: str, tools: Iterable[Mapping[str, object]], system: str) -> None:
    """The system turn of a conversation with tools."""
    described = [json_text(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    turns.open("system")
    turns.text(f"{effort}\n\n" if effort else "")
    turns.text(TOOLS_HEADER)
    turns.text("\n".join(described))
    for part in re.split(f"({TOOL_CALL}|{END_TOOL_CALL})", TOOLS_FOOTER):
        if part in (TOOL_CALL, END_TOOL_CALL):
            turns.control(part)
        else:
            turns.text(part)
    turns.text(f"\n\n{system}" if system else "")
    turns.close()


def _write_messages(
    turns: Turns, messages: Sequence[Message], write_answer: Callable[[int, Message], None]
) -> None:
    """All turns after the system's; consecutive results of tools share one."""
    for index, message in enumerate(messages):
        if message.role == "user":
            turns.turn("user", message.content.strip())
        elif message.role == "assistant":
            write_answer(index, message)
        elif message.role == "tool" and messages[index - 1].role != "tool":
            results = takewhile(lambda later: later.role == "tool", messages[index:])
            turns.tool_results([result.content.strip() for result in results])


def _calls(message: Message, index: int, value: Callable[[object, str], str]) -> list[str]:
    """The inside of each tool call of a message."""
    return [
        _call(call, f"messages[{index}].tool_calls[{number}].arguments", value)
        for number, call in enumerate(message.tool_calls)
    ]


def _call(call: ToolCall, path: str, value: Callable[[object, str], str]) -> str:
    parameters = (
        f"<parameter={name}>\n{value(argument, path)}\n</parameter>\n"
        for name, argument in call.arguments.items()
    )
    return f"<function={call.name}>\n{''.join(parameters)}</function>"


def _value(argument: object, path: str) -> str:
    return argument if isinstance(argument, str) else json_text(argument, path)


def _old_value(argument: object, path: str) -> str:
    """Qwen3.5 writes numbers, truth values and null as Python does."""
    return json_text(argument, path) if isinstance(argument, (dict, list, tuple)) else str(argument)


def _check_order(messages: Sequence[Message]) -> int:
    """Refuse orders that these formats do not have; the index of the last question."""
    for index, message in enumerate(messages):
        if message.role == "system" and index > 0:
            path = f"messages[{index}]"
            raise InvalidInputError(f"{path} is a system message; only the first one may be", f"{path}.role")
    if messages[0].role == "tool":
        raise InvalidInputError("messages[0] is a tool's result without a call before it", "messages[0].role")
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
