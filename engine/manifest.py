"""Manifests: small TOML files that pin one model by path, length and SHA-256.

    schema = 1
    path = "Bonsai-8B-Q1_0.gguf"    # relative to the manifest's own folder, or absolute
    bytes = 1158654496
    sha256 = "284a335a…"
    name = "Bonsai-8B-Q1_0"         # optional: what to call the model
    chat_template = "qwen3"         # optional: the renderer to use if the file's own is unknown

The parser refuses keys that it does not know. It does not look at the model; `artifact` does.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.artifact import Pin
from engine.errors import InvalidInputError
from engine.paths import openable

SCHEMA = 1
MAX_MANIFEST_BYTES = 65_536
KEYS = {"schema": int, "path": str, "bytes": int, "sha256": str, "name": str, "chat_template": str}
OPTIONAL = {"name", "chat_template"}


@dataclass(frozen=True)
class Manifest:
    """A pin with what the user says about the model."""

    pin: Pin
    name: str | None = None
    chat_template: str | None = None


def read_manifest(path: Path) -> Manifest:
    """Reads and checks the manifest at `path`; a relative model path starts at the manifest's folder."""
    try:
        with openable(path).open("rb") as file:
            raw = file.read(MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_MANIFEST_BYTES:
        raise _refused(path, f"is larger than {MAX_MANIFEST_BYTES} bytes")
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        raise _refused(path, "is not valid TOML in UTF-8") from None
    _check_keys(path, table)
    # The file name's bytes are the manifest's, whatever the system's encoding is.
    model = path.absolute().parent / os.fsdecode(table["path"].encode("utf-8"))
    try:
        pin = Pin(model, table["bytes"], table["sha256"])
    except InvalidInputError as error:
        raise _refused(path, f"is refused: {error}") from None
    return Manifest(pin, table.get("name"), table.get("chat_template"))


def format_manifest(manifest: Manifest, folder: Path | None = None, facts: Sequence[str] = ()) -> str:
    """The manifest as TOML; `facts` become comment lines at its top.

    A model inside `folder`, where the manifest will be kept, is named relative to it.
    """
    model = manifest.pin.path
    inside = folder is not None and model.is_relative_to(folder)
    path = model.relative_to(folder or model).as_posix() if inside else str(model)
    lines = [*(f"# {fact}" for fact in facts), f"schema = {SCHEMA}"]
    lines += [
        f"path = {_quoted(path)}",
        f"bytes = {manifest.pin.nbytes}",
        f'sha256 = "{manifest.pin.sha256}"',
    ]
    if manifest.name is not None:
        lines.append(f"name = {_quoted(manifest.name)}")
    if manifest.chat_template is not None:
        lines.append(f"chat_template = {_quoted(manifest.chat_template)}")
    return "\n".join(lines) + "\n"


def _check_keys(path: Path, table: dict[str, Any]) -> None:
    if unknown := [key for key in table if key not in KEYS]:
        raise _refused(path, f"has the unknown key {unknown[0]!a}; known are {', '.join(KEYS)}")
    for key, kind in KEYS.items():
        if key not in table and key not in OPTIONAL:
            raise _refused(path, f"has no key '{key}'")
        if key in table and type(table[key]) is not kind:
            raise _refused(path, f"must have {'an integer' if kind is int else 'a string'} as '{key}'")
    if table["schema"] != SCHEMA:
        raise _refused(path, f"has schema {table['schema']}; this program reads schema {SCHEMA}")
    for key in ("path", *OPTIONAL):
        if table.get(key) == "":
            raise _refused(path, f"has an empty '{key}'")


def _refused(path: Path, problem: str) -> InvalidInputError:
    return InvalidInputError(f"the manifest {path} {problem}", field="manifest")


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are a subset of TOML's, except that TOML escapes DEL too."""
    try:
        text = os.fsencode(text).decode("utf-8")  # a path's bytes, however the system decoded them
    except UnicodeError:
        raise InvalidInputError("the model's path is not valid Unicode, which a manifest must be") from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
