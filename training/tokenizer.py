"""The byte-level BPE vocabulary, trained on the corpus, and the keys that declare it in the file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.gguf_file import Key, header
from engine.gguf import parse_header
from engine.tokenizer import Tokenizer
from engine.vocabulary import BYTE_ALPHABET, TokenType

RULE = "qwen35"
# The split that the rule stands for, in the notation of the `tokenizers` package.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# In the order and with the types of the published Qwen3.5 files.
SPECIAL = {
    "<|endoftext|>": TokenType.CONTROL,
    "<|im_start|>": TokenType.CONTROL,
    "<|im_end|>": TokenType.CONTROL,
    "<tool_call>": TokenType.USER_DEFINED,
    "</tool_call>": TokenType.USER_DEFINED,
    "<tool_response>": TokenType.USER_DEFINED,
    "</tool_response>": TokenType.USER_DEFINED,
    "<think>": TokenType.USER_DEFINED,
    "</think>": TokenType.USER_DEFINED,
}


def train_merges(texts: Iterable[str], vocabulary: int) -> list[str]:
    """The merges of a vocabulary of that many tokens, each as `left right`."""
    from tokenizers import Regex, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Trained

    trained = Trained(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    merges = json.loads(trained.to_str())["model"]["merges"]
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]


def tokenizer_keys(merges: list[str]) -> list[Key]:
    """The `tokenizer.ggml.*` keys: bytes, merges, special tokens, in this order."""
    tokens = [*BYTE_ALPHABET, *(merge.replace(" ", "") for merge in merges), *SPECIAL]
    types = [TokenType.NORMAL] * (len(tokens) - len(SPECIAL)) + list(SPECIAL.values())
    return [
        ("tokenizer.ggml.model", "string", "gpt2"),
        ("tokenizer.ggml.pre", "string", RULE),
        ("tokenizer.ggml.tokens", "[string]", tokens),
        ("tokenizer.ggml.token_type", "[i32]", types),
        ("tokenizer.ggml.merges", "[string]", merges),
        ("tokenizer.ggml.bos_token_id", "u32", tokens.index("<|endoftext|>")),
        ("tokenizer.ggml.eos_token_id", "u32", tokens.index("<|im_end|>")),
        ("tokenizer.ggml.padding_token_id", "u32", tokens.index("<|endoftext|>")),
        ("tokenizer.ggml.add_bos_token", "bool", False),
    ]


def make_tokenizer(merges: list[str]) -> Tokenizer:
    """The engine's tokenizer of these merges."""
    data = header([("general.architecture", "string", "qwen35"), *tokenizer_keys(merges)], [])
    return Tokenizer.from_metadata(parse_header(data, len(data)).metadata)


def read_merges(path: Path) -> list[str]:
    """Merges as `write_merges` wrote them."""
    merges: list[str] = json.loads(path.read_text("utf-8"))
    return merges


def write_merges(path: Path, merges: list[str]) -> None:
    """Keeps merges as a JSON array."""
    path.write_text(json.dumps(merges, ensure_ascii=False), "utf-8")
