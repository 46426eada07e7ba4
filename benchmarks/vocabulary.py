"""A made-up byte-level vocabulary of a given size, complete enough that every loader takes it.

It has the 256 bytes, as many merges as the real one (loading a model includes reading them), the tokens
that chat formats need, and padding. Merges are pairs of letters, then pairs with a third letter.
"""

from __future__ import annotations

from benchmarks.gguf_file import Key
from benchmarks.shapes import VocabularySize
from engine.vocabulary import BYTE_ALPHABET, TokenType

SPECIAL = {
    "<|endoftext|>": TokenType.CONTROL,
    "<|im_start|>": TokenType.CONTROL,
    "<|im_end|>": TokenType.CONTROL,
    "<think>": TokenType.USER_DEFINED,
    "</think>": TokenType.USER_DEFINED,
}


def vocabulary_keys(size: VocabularySize) -> list[Key]:
    """The `tokenizer.ggml.*` keys."""
    merges = _merges(size.merges)
    tokens = [*BYTE_ALPHABET, *(left + right for left, right in merges)]
    types = [TokenType.NORMAL] * len(tokens)
    end = len(tokens)
    tokens += SPECIAL
    types += SPECIAL.values()
    padding = size.rows - len(tokens)
    tokens += [f"[PAD{number}]" for number in range(padding)]
    types += [TokenType.UNUSED] * padding
    return [
        ("tokenizer.ggml.model", "string", "gpt2"),
        ("tokenizer.ggml.pre", "string", size.rule),
        ("tokenizer.ggml.tokens", "[string]", tokens),
        ("tokenizer.ggml.token_type", "[i32]", types),
        ("tokenizer.ggml.merges", "[string]", [f"{left} {right}" for left, right in merges]),
        ("tokenizer.ggml.eos_token_id", "u32", end + 2),
        ("tokenizer.ggml.padding_token_id", "u32", end),
        ("tokenizer.ggml.add_bos_token", "bool", False),
    ]


def _merges(count: int) -> list[tuple[str, str]]:
    letters = BYTE_ALPHABET
    pairs = [(left, right) for left in letters for right in letters]
    more = -(-max(0, count - len(pairs)) // len(letters))
    longer = [(left + right, third) for left, right in pairs[:more] for third in letters]
    return (pairs + longer)[:count]
