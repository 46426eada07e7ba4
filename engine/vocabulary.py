"""The vocabulary of a byte-level tokenizer: which bytes each token id stands for, and its type.

It reads `tokenizer.ggml.tokens` and `.token_type`, checks all of it once, and turns an id into its exact
bytes on demand. It does not know how text becomes ids, nor which tokens end a generation.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cached_property
from itertools import compress
from typing import Self

from engine.errors import InvalidInputError, MetadataError, UnsupportedTokenizerError
from engine.metadata import Metadata

TOKENS = "tokenizer.ggml.tokens"
TOKEN_TYPES = "tokenizer.ggml.token_type"

MAX_TOKENS = 1_000_000
MAX_PIECE_BYTES = 1 << 20
MAX_VOCABULARY_BYTES = 64 << 20
MAX_SPECIAL_SPELLING_BYTES = 1024


class TokenType(IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


def _byte_alphabet() -> str:
    """One printable character a byte: itself where it is printable, else U+0100 and up in byte order."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


# Normal tokens and merges are spelled in these 256 characters; index = byte (GPT-2's map).
BYTE_ALPHABET = _byte_alphabet()
_BYTE_OF = {ord(character): byte for byte, character in enumerate(BYTE_ALPHABET)}


class Vocabulary:
    """All tokens of a model. Immutable after construction; `spellings` are as the file has them."""

    def __init__(self, spellings: list[str], types: Iterable[int]) -> None:
        self._spellings = spellings
        self._types = bytes(types)

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Self:
        """Read and check the vocabulary; without token types, every token is a normal one."""
        spellings = metadata.strings(TOKENS)
        _check_sizes(spellings)
        types = [int(TokenType.NORMAL)] * len(spellings)
        if TOKEN_TYPES in metadata:
            types = metadata.integers(TOKEN_TYPES).tolist()
            _check_types(types, len(spellings))
        vocabulary = cls(spellings, types)
        vocabulary._check_spellings()
        return vocabulary

    @property
    def size(self) -> int:
        """Number of tokens, which is also the number of logits."""
        return len(self._spellings)

    @cached_property
    def unused(self) -> frozenset[int]:
        """Ids that pad the vocabulary and must never be sampled."""
        return frozenset(self._ids(TokenType.UNUSED))

    def piece(self, token: int) -> bytes:
        """The exact bytes of a token; special tokens give their spelling as UTF-8."""
        if not 0 <= token < self.size:
            raise InvalidInputError(f"token id {token} is outside the vocabulary of {self.size} tokens")
        spelling = self._spellings[token]
        if self._types[token] in (TokenType.NORMAL, TokenType.BYTE):
            return spelling.translate(_BYTE_OF).encode("latin-1")
        return spelling.encode("utf-8")

    def decode(self, tokens: Iterable[int]) -> bytes:
        """The pieces of all tokens, joined; not necessarily whole UTF-8 characters."""
        return b"".join(map(self.piece, tokens))

    def is_control(self, token: int) -> bool:
        """Whether the file declares this token to be a control token."""
        if not 0 <= token < self.size:
            raise InvalidInputError(f"token id {token} is outside the vocabulary of {self.size} tokens")
        return self._types[token] == TokenType.CONTROL

    def normal(self) -> dict[str, int]:
        """Spelling in the byte alphabet → id, for the tokens that plain text may become."""
        return self._by_spelling(TokenType.NORMAL, TokenType.BYTE)

    @cached_property
    def special(self) -> dict[str, int]:
        """Spelling → id of control and user-defined tokens."""
        return self._by_spelling(TokenType.CONTROL, TokenType.USER_DEFINED)

    def _ids(self, *types: TokenType) -> list[int]:
        return [token for token, kind in enumerate(self._types) if kind in types]

    def _by_spelling(self, *types: TokenType) -> dict[str, int]:
        # Where two tokens share a spelling, the later one is met, as in llama.cpp.
        chosen = self._types.translate(bytes(kind in types for kind in range(256)))
        return dict(zip(compress(self._spellings, chosen), compress(range(self.size), chosen), strict=True))

    def _check_spellings(self) -> None:
        """Normal tokens keep to the byte alphabet, special spellings to their length."""
        normal = self.normal()
        if not set(BYTE_ALPHABET).issuperset("".join(normal)):
            allowed = set(BYTE_ALPHABET)
            token = next(token for spelling, token in normal.items() if not allowed.issuperset(spelling))
            raise MetadataError(f"{TOKENS}[{token}] has a character that the byte-level alphabet has not")
        for spelling, token in self.special.items():
            if len(spelling) > MAX_SPECIAL_SPELLING_BYTES:
                raise MetadataError(
                    f"{TOKENS}[{token}] is a special token of {len(spelling)} characters; "
                    f"at most {MAX_SPECIAL_SPELLING_BYTES} are allowed"
                )


def check_byte_level(metadata: Metadata) -> None:
    """Refuse a tokenizer whose tokens are not spelled in the byte alphabet."""
    model = metadata.string("tokenizer.ggml.model")
    if model != "gpt2":
        raise UnsupportedTokenizerError(
            f"tokenizer.ggml.model is {model!r}; only byte-level BPE ('gpt2') is supported"
        )


def _check_sizes(spellings: list[str]) -> None:
    if not 0 < len(spellings) <= MAX_TOKENS:
        raise MetadataError(f"{TOKENS} has {len(spellings)} entries; 1 to {MAX_TOKENS} are allowed")
    suspects = (spelling for spelling in spellings if len(spelling) > MAX_PIECE_BYTES // 4)
    if any(len(spelling.encode("utf-8")) > MAX_PIECE_BYTES for spelling in suspects):
        raise MetadataError(f"{TOKENS} has an entry of more than {MAX_PIECE_BYTES} bytes")
    total = len("".join(spellings).encode("utf-8"))
    if total > MAX_VOCABULARY_BYTES:
        raise MetadataError(f"{TOKENS} holds {total} bytes; at most {MAX_VOCABULARY_BYTES} are allowed")


def _check_types(types: list[int], count: int) -> None:
    if len(types) != count:
        raise MetadataError(f"{TOKEN_TYPES} has {len(types)} entries for {count} tokens")
    known = {int(kind) for kind in TokenType}
    if not known.issuperset(types):
        token = next(token for token, kind in enumerate(types) if kind not in known)
        raise MetadataError(f"{TOKEN_TYPES}[{token}] is {types[token]}; 1 to 6 are known")
