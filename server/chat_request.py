"""The body of a chat completion: its table of fields, and the way from messages to a prompt.

Message content becomes text segments for the engine's renderer; nothing here builds a prompt string.
"""

from __future__ import annotations

from typing import Any, cast

from engine.chat.messages import ChatOptions, Message, Role
from server.backend import Backend, ChatPrompt
from server.errors import ApiError, bad_field
from server.fields import Fields, FieldTable
from server.generation_fields import (
    GENERATION_HONOURED,
    GENERATION_IGNORED,
    GENERATION_REFUSED,
    Prompt,
    Request,
    check_model,
    read_request,
)
from server.limits import Limits

MAX_MESSAGES = 4096
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

TEMPLATE_HONOURED = ("messages", "reasoning_effort", "chat_template_kwargs")
CHAT = FieldTable(
    honoured=(*GENERATION_HONOURED, "max_completion_tokens", *TEMPLATE_HONOURED),
    ignored=GENERATION_IGNORED | {"safety_identifier": str, "prompt_cache_key": str},
    refused=GENERATION_REFUSED
    | {
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "functions": ([],),
        "function_call": ("none",),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "response_format": ({"type": "text"},),
        "modalities": (["text"],),
        "audio": (),
        "prediction": (),
        "verbosity": (),
        "web_search_options": (),
    },
)
MESSAGE = FieldTable(
    honoured=("role", "content", "reasoning_content"),
    ignored={"name": str},
    refused={
        "tool_calls": ([],),
        "tool_call_id": (),
        "function_call": (),
        "refusal": (),
        "audio": (),
        "annotations": ([],),
    },
)
CONTENT_PART = FieldTable(honoured=("type", "text"), ignored={}, refused={})
TEMPLATE_KWARGS = FieldTable(
    honoured=("enable_thinking", "preserve_thinking", "reasoning_effort"), ignored={}, refused={}
)


def parse_chat(body: dict[str, Any], served: str, backend: Backend, limits: Limits) -> Request:
    """The work that a chat completion asks for, or an error that names the field."""
    fields = CHAT.check(body)
    check_model(fields, served)
    chat = read_chat(fields, backend)
    prompt = Prompt(chat.tokens, backend.stop_tokens(chat.turn_ends), chat.reasoning, chat.stable_prefix)
    return read_request(fields, prompt, backend, limits)


def read_chat(fields: Fields, backend: Backend) -> ChatPrompt:
    """The messages and template options of a request, as a prompt."""
    if backend.facts.template is None:
        raise ApiError(
            501,
            "The model has no known chat template; start the server with --chat-template NAME.",
            code="unsupported_template",
            headers={"x-should-retry": "false"},
        )
    objects = fields.objects("messages", MAX_MESSAGES)
    if objects is None:
        raise fields.required("messages")
    messages = [_message(MESSAGE.check(value, path)) for path, value in objects]
    return backend.encode_chat(messages, _options(fields))


def _message(fields: Fields) -> Message:
    role = fields.choice("role", ROLES)
    if role is None:
        raise fields.required("role")
    content = fields.raw("content")
    if content is None:
        raise fields.required("content")
    if isinstance(content, list):
        content = "".join(
            _part(CONTENT_PART.check(value, path)) for path, value in fields.objects("content", 1024) or ()
        )
    elif not isinstance(content, str):
        raise bad_field(fields.path("content"), "must be a string or an array of parts", "invalid_type")
    return Message(cast(Role, ROLES[role]), content, fields.string("reasoning_content"))


def _part(fields: Fields) -> str:
    if fields.choice("type", ("text",)) is None:
        raise fields.required("type")
    text = fields.string("text")
    if text is None:
        raise fields.required("text")
    return text


def _options(fields: Fields) -> ChatOptions:
    kwargs = TEMPLATE_KWARGS.check(fields.typed("chat_template_kwargs", dict) or {}, "chat_template_kwargs")
    thinking = kwargs.boolean("enable_thinking")
    efforts = {
        effort
        for effort in (fields.string("reasoning_effort"), kwargs.string("reasoning_effort"))
        if effort is not None
    }
    if len(efforts) > 1:
        raise bad_field("reasoning_effort", "differs from the one in chat_template_kwargs; give one of them")
    if "none" in efforts:  # OpenAI's word for not thinking at all
        if thinking:
            raise bad_field("reasoning_effort", "is 'none', but enable_thinking is true")
        thinking, efforts = False, set()
    return ChatOptions(
        enable_thinking=thinking,
        reasoning_effort=next(iter(efforts), None),
        preserve_thinking=kwargs.boolean("preserve_thinking"),
    )
