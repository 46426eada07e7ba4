"""Text to token ids for one model: special-token policy, pre-tokenizer and byte-pair merging together.

It applies no chat template and no Unicode normalisation, and inserts no boundary tokens unless asked to.
It knows nothing of contexts or budgets.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal, Self

from engine.bpe import Bpe
from engine.errors import InvalidInputError
from engine.metadata import Metadata
from engine.pretokenizer import PreTokenizer
from engine.special_input import SpecialInput
from engine.special_tokens import SpecialTokens
from engine.vocabulary import Vocabulary, check_byte_level

SpecialInputPolicy = Literal["literal", "parse"]
InsertSpecialPolicy = Literal["none", "model"]

MAX_INPUT_BYTES = 1 << 20


class Tokenizer:
    """A model's tokenizer. Immutable but for caches; may be shared between threads."""

    def __init__(
        self, vocabulary: Vocabulary, special: SpecialTokens, pretokenizer: PreTokenizer, bpe: Bpe
    ) -> None:
        self.vocabulary = vocabulary
        self.special = special
        self._pretokenizer = pretokenizer
        self._bpe = bpe

    @classmethod
    def from_metadata(cls, metadata: Metadata) -> Self:
        """Build the tokenizer that the file declares, or say what of it is not supported."""
        check_byte_level(metadata)
        pretokenizer = PreTokenizer(metadata.string("tokenizer.ggml.pre"))
        vocabulary = Vocabulary.from_metadata(metadata)
        special = SpecialTokens.from_metadata(metadata, vocabulary.size)
        return cls(vocabulary, special, pretokenizer, Bpe.from_metadata(metadata, vocabulary))

    def encode(self, text: str, special_input: SpecialInputPolicy = "literal") -> list[int]:
        """Token ids of `text`; `parse` turns special spellings into their tokens, `literal` none."""
        _check_text(text)
        stretches = [text] if special_input == "literal" else self._special_input.split(text)
        ids: list[int] = []
        for stretch in stretches:
            if isinstance(stretch, int):
                ids.append(stretch)
            else:
                ids += self._bpe.encode_pieces(map(str.encode, self._pretokenizer.pieces(stretch)))
        return ids

    def encode_with_special_tokens(
        self,
        text: str,
        special_input: SpecialInputPolicy = "literal",
        insert_special: InsertSpecialPolicy = "none",
        special: SpecialTokens | None = None,
    ) -> list[int]:
        """As `encode`, with BOS and EOS put around the ids where `model` is asked and its flags are true.

        `special` stands in for the file's own declarations; it must be for a vocabulary of the same size.
        """
        special = special or self.special
        if special.vocabulary_size != self.vocabulary.size:
            raise InvalidInputError(
                f"the special tokens are for a vocabulary of {special.vocabulary_size} tokens, "
                f"but the tokenizer has {self.vocabulary.size}"
            )
        ids = self.encode(text, special_input)
        if insert_special == "none":
            return ids
        if special.add_bos:
            if special.bos is None:
                raise InvalidInputError(
                    "the model asks for a BOS token to be inserted but declares none; "
                    "use insert_special 'none'",
                    "insert_special",
                )
            ids.insert(0, special.bos)
        if special.add_eos:
            ids.append(special.eos)
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
