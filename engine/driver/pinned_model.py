"""Which model a command line names: by a manifest, by a name of the catalogue, or by length and SHA-256.

All commands that take a model share these rules. Only manifests and the catalogue are read here, never a
model file.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from engine.artifact import Pin
from engine.catalogue import Conversation, published_file
from engine.demo import manifest_path
from engine.errors import InvalidInputError
from engine.manifest import read_manifest


@dataclass(frozen=True)
class PinnedModel:
    """A pin, what to call the model (None: nothing is said), and how it is meant to be talked to."""

    pin: Pin
    name: str | None
    conversation: Conversation


def pinned_model(given: argparse.Namespace) -> PinnedModel:
    """The model of the options `--demo`, `--manifest`, `--catalogue`, `--model`, `--bytes` and `--sha256`.

    Raises `InvalidInputError` for a combination that names none, or two.
    """
    others = [name for name in ("model", "catalogue", "bytes", "sha256") if getattr(given, name) is not None]
    demo = getattr(given, "demo", None)  # not every command has it
    if given.manifest is not None and demo:
        raise InvalidInputError("--demo and --manifest exclude each other", "demo")
    if given.manifest is not None or demo:
        if others:
            flag = "demo" if demo else "manifest"
            raise InvalidInputError(f"--{flag} and --{others[0]} exclude each other", flag)
        manifest = read_manifest(manifest_path() if demo else given.manifest)
        return PinnedModel(manifest.pin, manifest.name, Conversation(manifest.chat_template))
    if others == ["model", "catalogue"]:
        file = published_file(given.catalogue)
        return PinnedModel(Pin(given.model, file.nbytes, file.sha256), file.name, file.conversation)
    if others == ["model", "bytes", "sha256"]:
        return PinnedModel(Pin(given.model, given.bytes, given.sha256), None, Conversation())
    raise InvalidInputError(
        "--manifest is needed, or --model with --catalogue, or --model, --bytes and --sha256 together",
        "model",
    )
