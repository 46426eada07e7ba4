from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInputError
from engine.token_input import MAX_TOKEN_INPUT_BYTES, read_tokens

U32 = st.integers(0, 2**32 - 1)


def read(content: bytes, limit: int = 1000) -> list[int]:
    """The ids in some bytes."""
    return read_tokens(io.BytesIO(content), limit)


@given(st.lists(U32, max_size=50), st.sampled_from([None, 0, 2, "\t"]))
def test_arrays_come_back(ids: list[int], indent: int | str | None) -> None:
    """Order, duplicates and the largest ids survive, with any JSON white space."""
    assert read(json.dumps(ids, indent=indent).encode()) == ids


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        (b"[]", []),
        (b" [ ] \n", []),
        (b"[42,17,42]", [42, 17, 42]),
        (b"\t[0 ,\r\n4294967295]\n", [0, 2**32 - 1]),
    ],
)
def test_accepted(content: bytes, ids: list[int]) -> None:
    """White space is free, and an empty array is a sequence."""
    assert read(content) == ids


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b" ", b"[", b"]", b"[1", b"1]", b"1", b"null", b"{}", b'"[1]"', b"[1,]", b"[,1]", b"[1,,2]"),
        *(b"[1 2]", b"[1]]", b"[[1]]", b"[1][2]", b"[1] x", b"[1]\x00", b"[1,2]//c", b"[1/*c*/]", b"#\n[1]"),
        *(b"[-1]", b"[-0]", b"[+1]", b"[1.0]", b"[1e2]", b"[01]", b"[00]", b"[0x1]", b"[1_0]", b"[true]"),
        *(
            b"[null]",
            b"[NaN]",
            b"['1']",
            b'["1"]',
            b"[4294967296]",
            b"[99999999999999999999]",
            b"[" + b"9" * 9999,
        ),
        *(
            b"\xef\xbb\xbf[1]",
            b"[\xd9\xa1]",
            "[１]".encode(),
            b"[1\x0b]",
            b"[1\xa0]",
            b"[1]\xe2\x80\xa8",
            b"[" * 9999,
        ),
        "[1]".encode("utf-16"),
        "[1]".encode("utf-32-le"),
    ],
)
def test_refused(content: bytes) -> None:
    """Anything but one flat array of unsigned 32-bit decimals is refused."""
    with pytest.raises(InvalidInputError) as caught:
        read(content)
    assert caught.value.field == "tokens"


@given(st.binary(max_size=30))
def test_agrees_with_json(content: bytes) -> None:
    """Whatever is accepted is what the standard library reads, too."""
    try:
        ids = read(b"[" + content + b"]")
    except InvalidInputError:
        return
    assert json.loads(b"[" + content + b"]") == ids


def test_count_limit() -> None:
    """The limit counts ids, and is checked before they are read."""
    assert read(b"[1,2,3]", 3) == [1, 2, 3]
    with pytest.raises(InvalidInputError, match="has 4 ids; at most 3"):
        read(b"[1,2,3,x]", 3)


def test_byte_limit() -> None:
    """White space counts towards 1 MiB; a longer input costs one byte more."""
    assert read(b"[1]".ljust(MAX_TOKEN_INPUT_BYTES)) == [1]
    stream = io.BytesIO(b"[1]".ljust(MAX_TOKEN_INPUT_BYTES + 9))
    with pytest.raises(InvalidInputError, match="larger than 1048576 bytes"):
        read_tokens(stream)
    assert stream.tell() == MAX_TOKEN_INPUT_BYTES + 1


def test_the_bounds_are_independent() -> None:
    """Ids that are few enough for the context may still be too many bytes of JSON."""
    most = 262_144
    with pytest.raises(InvalidInputError, match="larger than 1048576 bytes"):
        read(b"[" + b",".join([b"4294967295"] * 100_000) + b"]", most)
    assert len(read(b"[" + b",".join([b"7"] * most) + b"]", most)) == most
    with pytest.raises(InvalidInputError, match="has 262145 ids; at most 262144"):
        read_tokens(io.BytesIO(b"[" + b",".join([b"7"] * (most + 1)) + b"]"))
