"""Published model files, known by length and SHA-256, and how each is meant to be talked to.

The data are in `catalogue.toml` beside this module, which is read strictly: a key that is not known, or a
value of another type, is an error. Nothing here looks at a model file, renders a conversation or samples;
names of chat templates and samplers are plain words for those who do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from engine.errors import InvalidInputError

SCHEMA = 1


@dataclass(frozen=True)
class Conversation:
    """Settings of a file for conversations; None (and no stop tokens) where nothing is laid down.

    chat_template      name of the built-in renderer
    template_sha256    SHA-256 of the template's text inside the file
    enable_thinking, reasoning_effort, preserve_thinking
                       wishes for the renderer, as in `engine.chat.ChatOptions`
    sampling           name of the sampler's preset
    stop_tokens        all ids that end an answer
    vocabulary_size    tokens
    context            longest sequence in tokens, output included
    model_bytes, state_bytes, checkpoint_bytes, output_bytes
                       budgets for the model, its state, checkpoints of it, and the text of one answer
    """

    chat_template: str | None = None
    template_sha256: str | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    preserve_thinking: bool | None = None
    sampling: str | None = None
    stop_tokens: tuple[int, ...] = ()
    vocabulary_size: int | None = None
    context: int | None = None
    model_bytes: int | None = None
    state_bytes: int | None = None
    checkpoint_bytes: int | None = None
    output_bytes: int | None = None


@dataclass(frozen=True)
class PublishedFile:
    """A released model file."""

    name: str
    nbytes: int
    sha256: str
    conversation: Conversation = Conversation()


@cache
def published_files() -> tuple[PublishedFile, ...]:
    """All entries, in the order of `catalogue.toml`."""
    return parse_catalogue(files("engine").joinpath("catalogue.toml").read_text("utf-8"))


def find_published(nbytes: int, sha256: str) -> PublishedFile | None:
    """The published file with this length and hash, if there is one."""
    return next((file for file in published_files() if (file.nbytes, file.sha256) == (nbytes, sha256)), None)


def published_file(name: str) -> PublishedFile:
    """The published file of this name. Raises `InvalidInputError`, which lists the names there are."""
    for file in published_files():
        if file.name == name:
            return file
    known = ", ".join(file.name for file in published_files())
    raise InvalidInputError(f"the catalogue has no such name; it has {known}", "catalogue")


def parse_catalogue(text: str) -> tuple[PublishedFile, ...]:
    """The entries of a catalogue's TOML text. Raises `ValueError` for anything that is not one."""
    table = _checked(tomllib.loads(text), {"schema": int, "file": list}, set(), "the catalogue")
    if table["schema"] != SCHEMA:
        raise ValueError(f"the catalogue has schema {table['schema']}; this program reads schema {SCHEMA}")
    return tuple(_published_file(entry) for entry in table["file"])


_FILE_KEYS = {"name": str, "bytes": int, "sha256": str, "conversation": dict}
_TYPES = {"str | None": str, "bool | None": bool, "int | None": int, "tuple[int, ...]": list}
_CONVERSATION_KEYS = {field.name: _TYPES[str(field.type)] for field in fields(Conversation)}


def _published_file(entry: object) -> PublishedFile:
    file = _checked(entry, _FILE_KEYS, {"conversation"}, "a file")
    where = f"the conversation of {file['name']}"
    settings = _checked(file.get("conversation", {}), _CONVERSATION_KEYS, set(_CONVERSATION_KEYS), where)
    stops = settings.get("stop_tokens", [])
    if not all(type(token) is int for token in stops):
        raise ValueError(f"{where} has stop_tokens that are no integers")
    conversation = Conversation(**{**settings, "stop_tokens": tuple(stops)})
    return PublishedFile(file["name"], file["bytes"], file["sha256"], conversation)


def _checked(table: Any, kinds: Mapping[str, type], optional: set[str], where: str) -> dict[str, Any]:
    """`table` itself, if it has no other keys than `kinds`, all but the optional ones, in their types."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table")
    if unknown := [key for key in table if key not in kinds]:
        raise ValueError(f"{where} has the unknown key {unknown[0]!a}")
    for key, kind in kinds.items():
        if key not in table and key not in optional:
            raise ValueError(f"{where} has no key '{key}'")
        if key in table and type(table[key]) is not kind:
            raise ValueError(f"{where} must have a value of type {kind.__name__} as '{key}'")
    return table
