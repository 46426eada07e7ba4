from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import InvalidInputError
from engine.text_output import Utf8Output


def test_split_characters() -> None:
    """A character cut in two comes out whole with its last byte, and completed ones at once."""
    output = Utf8Output()
    assert output.push(b"\xf0\x9f\x98") == ""
    assert output.push(b"\xb8\xf0\x9f\x98\xb8\xf0") == "😸😸"
    assert output.push(b"\x9f\x98\xb8") == "😸"
    assert output.finish() == ""


def test_truncated_end() -> None:
    """What is left of a character at the end is one U+FFFD, given out once."""
    output = Utf8Output()
    assert output.push(b"ok\xe4\xbd") == "ok"
    assert output.finish() == "\ufffd"
    assert output.finish() == ""
    assert output.push(b"a") == "a"


def test_reset() -> None:
    """Abandoned output leaves nothing behind."""
    output = Utf8Output()
    output.push(b"\xe4\xbd")
    output.reset()
    assert output.push(b"\xa0a") == "\ufffda"
    assert output.finish() == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\xff", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbf", "\ufffd\ufffd\ufffdb\ufffdc\ufffd\ufffd"),
    ],
)
def test_one_replacement_per_maximal_prefix(raw: bytes, text: str) -> None:
    """The examples of the Unicode standard, whole and byte by byte."""
    output = Utf8Output()
    assert output.push(raw) + output.finish() == text
    assert "".join(output.push(bytes([byte])) for byte in raw) + output.finish() == text


# Bytes that begin, continue and spoil characters, far more often than chance would bring them.
BYTES = st.sampled_from([0x41, 0x80, 0x90, 0x9F, 0xA0, 0xBF, 0xC2, 0xE0, 0xE4, 0xED, 0xEF, 0xF0, 0xF4, 0xFF])
RAW = st.lists(BYTES, max_size=12).map(bytes) | st.binary(max_size=20) | st.text(max_size=6).map(str.encode)


@given(pieces=st.lists(RAW, max_size=12))
@example(pieces=[b"\xed", b"\xa0"])
@example(pieces=[b"\xf0", b"\x8f"])
def test_any_split_gives_the_lossy_decoding(pieces: list[bytes]) -> None:
    """However bytes are cut, the text is their whole lossy decoding, and at most three bytes wait."""
    output, text = Utf8Output(), ""
    for index, piece in enumerate(pieces):
        text += output.push(piece)
        so_far = b"".join(pieces[: index + 1])
        assert any(so_far[: len(so_far) - kept].decode("utf-8", "replace") == text for kept in range(4))
    assert text + output.finish() == b"".join(pieces).decode("utf-8", "replace")


def test_push_bound() -> None:
    """One push of 1 MiB is admitted, one byte more is not."""
    output = Utf8Output()
    assert output.push(b"a" * (1 << 20)) == "a" * (1 << 20)
    with pytest.raises(InvalidInputError, match="1048577 bytes"):
        output.push(b"a" * ((1 << 20) + 1))
