"""What a generated token adds to the text that a reader of a conversation gets."""

from __future__ import annotations

from engine.chat.rendering import END_THINK, THINK
from engine.vocabulary import Vocabulary

_THINK_TAGS = (THINK.encode(), END_THINK.encode())


def shown(vocabulary: Vocabulary, token: int) -> bytes:
    """A token's bytes; nothing for control tokens, but for the tags around reasoning."""
    piece = vocabulary.piece(token)
    return b"" if vocabulary.is_control(token) and piece not in _THINK_TAGS else piece
