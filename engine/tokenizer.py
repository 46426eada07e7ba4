"""Text to token ids for one model: special-token policy, pre-tokenizer and byte-pair merging together.

It applies no chat template and no Unicode normalisation, and inserts no boundary tokens unless asked to.
It knows nothing of contexts or budgets.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

import regex

from engine.bpe import Bpe
from engine.errors import InvalidInputError, UnsupportedTokenizerError
from engine.metadata import Metadata
from engine.pretokenizer import pattern_of, split
from engine.special_input import SpecialInput
from engine.special_tokens import SpecialTokens
from engine.vocabulary import Vocabulary

SpecialInputPolicy = Literal["literal", "parse"]
InsertSpecialPolicy = Literal["none", "model"]

MAX_INPUT_BYTES = 1 << 20
# A piece is at least one token: what exceeds this fits no context that the engine admits.
MAX_INPUT_PIECES = 262_144


class Tokenizer:
    """A model's tokenizer. Immutable but for caches; may be shared between threads."""

    def __init__(
        self, vocabulary: Vocabulary, special: SpecialTokens, pattern: regex.Pattern[str], bpe: Bpe
    ) -> None:
        self.vocabulary = vocabulary
        self.special = special
        self._pattern = pattern
        self._bpe = bpe

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Self:
        """Build the tokenizer that the file declares, or say what of it is not supported."""
        model = metadata.string("tokenizer.ggml.model")
        if model != "gpt2":
            raise UnsupportedTokenizerError(
                f"tokenizer.ggml.model is {model!r}; only byte-level BPE ('gpt2') is supported"
            )
        pattern = pattern_of(metadata.string("tokenizer.ggml.pre"))
        vocabulary = Vocabulary.from_metadata(metadata)
        special = SpecialTokens.from_metadata(metadata, vocabulary.size)
        return cls(vocabulary, special, pattern, Bpe.from_metadata(metadata, vocabulary))

    def encode(self, text: str, special_input: SpecialInputPolicy = "literal") -> list[int]:
        """Token ids of `text`; `parse` turns special spellings into their tokens, `literal` none."""
        _check_text(text)
        stretches = [text] if special_input == "literal" else self._special_input.split(text)
        ids: list[int] = []
        pieces = 0
        for stretch in stretches:
            if isinstance(stretch, int):
                ids.append(stretch)
                continue
            for piece in split(self._pattern, stretch):
                ids.extend(self._bpe.encode_piece(piece))
                pieces += 1
                if pieces > MAX_INPUT_PIECES:
                    raise InvalidInputError(
                        f"the text has more than {MAX_INPUT_PIECES} words, numbers and signs"
                    )
        return ids

    def encode_with_special_tokens(
        self,
        text: str,
        special_input: SpecialInputPolicy = "literal",
        insert_special: InsertSpecialPolicy = "none",
    ) -> list[int]:
        """As `encode`, with BOS and EOS put around the ids where `model` is asked and its flags are true."""
        ids = self.encode(text, special_input)
        if insert_special == "none":
            return ids
        if self.special.add_bos:
            if self.special.bos is None:
                raise InvalidInputError(
                    "the model asks for a BOS token to be inserted but declares none; "
                    "use insert_special 'none'",
                    "insert_special",
                )
            ids.insert(0, self.special.bos)
        if self.special.add_eos:
            ids.append(self.special.eos)
        return ids

    def control_id(self, spelling: str) -> int | None:
        """The id of the control or user-defined token with exactly this spelling."""
        return self.vocabulary.special.get(spelling)

    @cached_property
    def _special_input(self) -> SpecialInput:
        return SpecialInput(self.vocabulary.special)


def _check_text(text: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInputError("the text holds half of a surrogate pair, which is no character") from None
    if size > MAX_INPUT_BYTES:
        raise InvalidInputError(f"the text has {size} bytes; at most {MAX_INPUT_BYTES} are allowed")
