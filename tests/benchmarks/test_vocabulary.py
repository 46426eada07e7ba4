from __future__ import annotations

from benchmarks.shapes import SHAPES
from benchmarks.vocabulary import vocabulary_keys
from engine.tokenizer import Tokenizer
from tests.gguf_writer import GgufWriter
from tests.vocabularies import metadata_of


def test_real_size() -> None:
    """The vocabulary of 1.7b has as many rows and merges as the real one, all different."""
    keys = {name: value for name, _, value in vocabulary_keys(SHAPES["1.7b"].vocabulary)}
    tokens, merges = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.merges"]
    assert (len(tokens), len(set(tokens))) == (151_669, 151_669)
    assert (len(merges), len(set(merges))) == (151_387, 151_387)


def test_works() -> None:
    """The tokenizer reads it, merges letters, and has the tokens that chat formats need."""
    writer = GgufWriter()
    for key in vocabulary_keys(SHAPES["tiny-qwen3"].vocabulary):
        writer.add(*key)
    tokenizer = Tokenizer.from_metadata(metadata_of(writer))
    text = "Any text, of more than ASCII: é\n"
    assert tokenizer.vocabulary.decode(tokenizer.encode(text)) == text.encode()
    assert tokenizer.vocabulary.size == 560
    assert tokenizer.control_id("<|im_end|>") == tokenizer.special.eos
    assert tokenizer.encode("\0\0") == [256]
