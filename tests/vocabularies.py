"""Tokenizers of real models for tests, and small vocabularies made on the spot.

tokenizer("smollm2")                     a real one, loaded once
small().add(...) → metadata_of(writer)   256 byte tokens, some merges, three control tokens, two think tags
"""

from __future__ import annotations

import lzma
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from engine.gguf import parse_header
from engine.metadata import Metadata
from engine.tokenizer import Tokenizer
from tests.gguf_writer import GgufWriter

DATA = Path(__file__).parent / "data"
FILES = {
    "qwen2": "ggml-vocab-qwen35.gguf.xz",
    "qwen35": "ggml-vocab-qwen35.gguf.xz",
    "refact": "ggml-vocab-refact.gguf.xz",
    "smollm2": "smollm2-vocabulary.gguf.xz",
}

# The characters that spell bytes 0 to 255 in such files, written down independently of the engine.
LETTERS = (
    [chr(code) for code in range(0x100, 0x121)]
    + [chr(code) for code in range(0x21, 0x7F)]
    + [chr(code) for code in range(0x121, 0x143)]
    + [chr(code) for code in range(0xA1, 0xAD)]
    + [chr(0x143)]
    + [chr(code) for code in range(0xAE, 0x100)]
)
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ċ Ċ")
SPECIAL = (("<|endoftext|>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("<think>", 4), ("</think>", 4))
EOS = len(LETTERS) + len(MERGES) + 2


def metadata_of(writer: GgufWriter) -> Metadata:
    """The keys that a writer has collected, read by the engine's parser."""
    data = writer.build()
    return parse_header(data, len(data)).metadata


def real_metadata(name: str) -> Metadata:
    """The keys of a real vocabulary file; `qwen2` is the qwen35 file under the other rule's name."""
    data = lzma.decompress((DATA / "tokenizer" / FILES[name]).read_bytes())
    if name == "qwen2":
        rule = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
        data = data.replace(rule + struct.pack("<Q", 6) + b"qwen35", rule + struct.pack("<Q", 5) + b"qwen2")
    return parse_header(data, len(data)).metadata


@cache
def tokenizer(name: str) -> Tokenizer:
    """A real tokenizer: `qwen2`, `qwen35`, `refact` or `smollm2`."""
    return Tokenizer.from_metadata(real_metadata(name))


@cache
def model_tokenizer(file: str) -> Tokenizer:
    """The tokenizer of one of the small models in `tests/data/models`."""
    return Tokenizer.from_metadata(model_metadata(file))


def model_metadata(file: str) -> Metadata:
    """The keys of one of the small models."""
    data = (DATA / "models" / file).read_bytes()
    return parse_header(data, len(data)).metadata


def small(
    merges: Sequence[str] = MERGES,
    special: Sequence[tuple[str, int]] = SPECIAL,
    pre: str = "qwen2",
    eos: int | None = EOS,
) -> GgufWriter:
    """A writer with a complete small tokenizer: byte tokens, one token a merge, then `special`."""
    tokens = LETTERS + [merge.replace(" ", "") for merge in merges] + [spelling for spelling, _ in special]
    types = [1] * (len(tokens) - len(special)) + [kind for _, kind in special]
    writer = (
        GgufWriter()
        .add("tokenizer.ggml.model", "string", "gpt2")
        .add("tokenizer.ggml.pre", "string", pre)
        .add("tokenizer.ggml.tokens", "[string]", tokens)
        .add("tokenizer.ggml.token_type", "[i32]", types)
        .add("tokenizer.ggml.merges", "[string]", merges)
    )
    return writer if eos is None else writer.add("tokenizer.ggml.eos_token_id", "u32", eos)
