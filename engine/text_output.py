"""Turns the bytes of generated tokens into text as they come, whatever way tokens cut characters.

Every completed character is given out at once; at most three bytes of an unfinished one are kept. Bytes
that cannot be UTF-8 become U+FFFD, one for each maximal prefix of a character, as Unicode recommends.
"""

from __future__ import annotations

from codecs import getincrementaldecoder

from engine.errors import InvalidInputError

MAX_PUSH_BYTES = 1 << 20

_Decoder = getincrementaldecoder("utf-8")


class Utf8Output:
    """Incremental UTF-8: the pushes and `finish` together give the lossy decoding of all bytes."""

    def __init__(self) -> None:
        self._decoder = _Decoder("replace")

    def push(self, piece: bytes) -> str:
        """The characters that are complete with these bytes."""
        if len(piece) > MAX_PUSH_BYTES:
            raise InvalidInputError(f"a piece has {len(piece)} bytes; at most {MAX_PUSH_BYTES} are allowed")
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """What is left of an unfinished character, as U+FFFD; ready for new output afterwards."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

    def reset(self) -> None:
        """Forget an unfinished character (the output was abandoned)."""
        self._decoder.reset()
