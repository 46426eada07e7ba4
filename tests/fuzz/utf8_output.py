"""Text output: any bytes, cut anywhere, against the decoding of the whole by the standard library."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.text_output import Utf8Output
from tests.fuzz.target import Target

# Bytes that begin, continue and spoil characters, far more often than chance would bring them.
TELLING = st.sampled_from(
    [0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xE4, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF]
)
PIECES = (
    st.lists(TELLING, max_size=8).map(bytes) | st.binary(max_size=12) | st.text(max_size=4).map(str.encode)
)
# Several outputs one after the other; True where one is given up instead of finished.
CASES = st.lists(st.tuples(st.lists(PIECES, max_size=10), st.booleans()), min_size=1, max_size=3)


def check(case: list[tuple[list[bytes], bool]]) -> None:
    """Every output is the lossy decoding of its bytes alone, prompt, with at most three bytes kept."""
    output = Utf8Output()
    for pieces, abandoned in case:
        raw, text = b"", ""
        for piece in pieces:
            raw += piece
            text += output.push(piece)
            check_kept(raw, text)
        if abandoned:
            output.reset()
        else:
            assert text + output.finish() == raw.decode("utf-8", "replace")


def check_kept(raw: bytes, text: str) -> None:
    """`text` is all of `raw` but for up to three last bytes, which no later byte could still complete."""
    kept = next(kept for kept in range(4) if raw[: len(raw) - kept].decode("utf-8", "replace") == text)
    if not kept:
        return
    tail = raw[len(raw) - kept :]
    continuations = [
        bytes([first]) + rest for first in range(0x80, 0xC0) for rest in (b"", b"\x80", b"\x80\x80")
    ]
    assert any(_is_character(tail + continuation) for continuation in continuations), (
        "a byte waits for nothing"
    )


def _is_character(raw: bytes) -> bool:
    # The standard decoder also waits for the last byte of half a surrogate pair before it refuses it.
    try:
        return len(raw.decode("utf-8", "surrogatepass")) == 1
    except UnicodeDecodeError:
        return False


TARGET = Target("utf8", CASES, check)
