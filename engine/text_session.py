"""The bytes of a verified file's tokens, ready for the output of any number of requests.

Which tokens end an answer or are shown is for the caller to decide, and so is turning bytes into text: one
`Utf8Output` a request takes its pieces, is finished with it, and is reset if it was abandoned.
"""

from __future__ import annotations

from typing import Self

from engine.artifact import Pin, Progress
from engine.verified_metadata import read_metadata
from engine.vocabulary import Vocabulary, check_byte_level


class TextOutputSession:
    """A vocabulary without weights, graph, open file or request. Threads may share it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    @classmethod
    def load(cls, pin: Pin, metadata_bytes: int, progress: Progress | None = None) -> Self:
        """Verify the whole file and keep its vocabulary, within the vocabulary's own bounds.

        `metadata_bytes` bounds the part of the file that is held meanwhile, not the process's memory.
        Raises `ArtifactError`s or `BudgetError`.
        """
        metadata = read_metadata(pin, metadata_bytes, progress)
        check_byte_level(metadata)
        return cls(Vocabulary.from_metadata(metadata))

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens; ids are smaller."""
        return self._vocabulary.size

    def piece(self, token: int) -> bytes:
        """The exact bytes of a token, which need not be whole characters."""
        return self._vocabulary.piece(token)

    def is_control(self, token: int) -> bool:
        """Whether the file declares the token to be a control token."""
        return self._vocabulary.is_control(token)
