"""The body of a plain completion: its table of fields, and a prompt that is text or token ids."""

from __future__ import annotations

from typing import Any, cast

from engine.receipt import EXACT_IDS, PromptPolicies
from server.backend import Backend, InsertSpecial, SpecialInput
from server.errors import bad_field
from server.fields import Fields, FieldTable, token_ids
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

COMPLETION = FieldTable(
    honoured=(*GENERATION_HONOURED, "prompt", "special_input", "insert_special"),
    ignored=GENERATION_IGNORED,
    refused=GENERATION_REFUSED
    | {"best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (), "response_format": ()},
)


def parse_completion(body: dict[str, Any], served: str, backend: Backend, limits: Limits) -> Request:
    """The work that a completion asks for, or an error that names the field."""
    fields = COMPLETION.check(body)
    check_model(fields, served)
    tokens, policies = _prompt(fields, backend)
    prompt = Prompt(tokens, backend.stop_tokens(()), policies=policies)
    return read_request(fields, prompt, backend, limits)


def read_policies(fields: Fields) -> tuple[SpecialInput, InsertSpecial]:
    """How special spellings in the text are taken, and whether boundary tokens are inserted."""
    special = fields.choice("special_input", ("literal", "parse")) or "literal"
    insert = fields.choice("insert_special", ("none", "model")) or "none"
    return cast(SpecialInput, special), cast(InsertSpecial, insert)


def _prompt(fields: Fields, backend: Backend) -> tuple[list[int], PromptPolicies]:
    value, path = fields.raw("prompt"), fields.path("prompt")
    if value is None:
        raise fields.required("prompt")
    if isinstance(value, list) and value and isinstance(value[0], (str, list)):
        if len(value) > 1:
            raise bad_field(path, "only one prompt a request is supported", "unsupported_parameter")
        value, path = value[0], f"{path}[0]"
    if isinstance(value, str):
        special, insert = read_policies(fields)
        return backend.encode(value, special, insert), PromptPolicies("text", special, insert)
    if not isinstance(value, list):
        raise bad_field(path, "must be a string or an array of token ids", "invalid_type")
    for policy in ("special_input", "insert_special"):
        if fields.has(policy):
            raise bad_field(policy, "is only allowed with a text prompt")
    return token_ids(value, path, backend.facts.vocabulary_size), EXACT_IDS
