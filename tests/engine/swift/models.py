"""Small chat models for tests of conversations: one that tells stories, and one that never ends an answer."""

from __future__ import annotations

import struct
from pathlib import Path

from engine.catalogue import Conversation
from engine.chat import Message
from engine.swift import SwiftSession
from tests.gguf_writer import F32
from tests.models import model_path, pin_of, transformer_file
from tests.vocabularies import EOS

STORIES = model_path("trained-qwen35-pq2_0-had")
STORY = [Message("user", "Tell me a very short story about a fox.")]
CONTEXT = 32_768
WIDTH = 256  # of `transformer_file`


def stories(seed: int = 7, **settings: object) -> SwiftSession:
    """A session with the trained model, in its own chat format."""
    conversation = Conversation(**{"chat_template": "chatml-think", **settings})  # type: ignore[arg-type]
    return SwiftSession.load(pin_of(STORIES), conversation, seed, threads=1)


def write_endless(path: Path) -> Path:
    """A random model without any weight for the tokens that end an answer: never one of the 20 likeliest."""
    writer = transformer_file("qwen3", F32, keys={"context_length": ("u32", CONTEXT)})
    name = b"output.weight"
    for index, (head, offset, data) in enumerate(writer.infos):
        if head.startswith(struct.pack("<Q", len(name)) + name):
            rows = WIDTH * 4
            changed = data[: (EOS - 2) * rows] + bytes(3 * rows) + data[(EOS + 1) * rows :]
            writer.infos[index] = (head, offset, changed)
    return writer.write(path)


def manifest_text(model: Path, chat_template: str) -> str:
    """A manifest for a model, as a user would write it."""
    pin = pin_of(model)
    return (
        f"schema = 1\npath = '{pin.path}'\nbytes = {pin.nbytes}\n"
        f'sha256 = "{pin.sha256}"\nchat_template = "{chat_template}"\n'
    )
