"""The bodies of `/v1/tokenize` and `/v1/detokenize`, and the records that answer them."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from engine.errors import ContextError
from server.backend import Backend
from server.chat_request import TEMPLATE_HONOURED, read_chat
from server.completion_request import read_policies
from server.errors import bad_field
from server.fields import FieldTable, token_ids
from server.generation_fields import check_model

TOKENIZE = FieldTable(
    honoured=(
        "model",
        "text",
        *TEMPLATE_HONOURED,
        "special_input",
        "insert_special",
        "reserved_output_tokens",
    ),
    ignored={},
    refused={},
)
DETOKENIZE = FieldTable(honoured=("model", "token_ids"), ignored={}, refused={})


def tokenize(body: dict[str, Any], served: str, backend: Backend) -> dict[str, Any]:
    """Exact ids and counts of a text or of a conversation, checked against the context."""
    fields = TOKENIZE.check(body)
    check_model(fields, served)
    context = backend.facts.context
    reserved = fields.integer("reserved_output_tokens", 0, 1 << 31) or 0
    policies: dict[str, Any]
    if fields.has("text") == fields.has("messages"):
        raise bad_field("text", "exactly one of text and messages is required")
    text = fields.string("text")
    if text is not None:
        refused, kind = ("reasoning_effort", "chat_template_kwargs"), "messages"
        special, insert = read_policies(fields)
        tokens = backend.encode(text, special, insert)
        policies = {"input_mode": "text", "special_input": special, "insert_special": insert}
    else:
        refused, kind = ("special_input", "insert_special"), "text"
        tokens = read_chat(fields, backend).tokens
        policies = {"input_mode": "messages", "chat_template": backend.facts.template}
    for name in refused:
        if fields.has(name):
            raise bad_field(name, f"is only allowed with {kind}")
    if len(tokens) + reserved > context:
        raise ContextError(len(tokens), reserved, context)
    return {
        "model": served,
        "model_sha256": backend.facts.sha256,
        "token_ids": tokens,
        "token_count": len(tokens),
        "context": context,
        "reserved_output_tokens": reserved,
        **policies,
    }


def detokenize(body: dict[str, Any], served: str, backend: Backend) -> dict[str, Any]:
    """The exact bytes of token ids, and the text that they make with U+FFFD for what is not UTF-8."""
    fields = DETOKENIZE.check(body)
    check_model(fields, served)
    value = fields.typed("token_ids", list)
    if value is None:
        raise fields.required("token_ids")
    data = backend.decode(token_ids(value, "token_ids", backend.facts.vocabulary_size))
    return {
        "model": served,
        "model_sha256": backend.facts.sha256,
        "text": data.decode("utf-8", "replace"),
        "bytes": b64encode(data).decode("ascii"),
    }
