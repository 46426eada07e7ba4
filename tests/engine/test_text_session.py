from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.artifact import Pin
from engine.errors import BudgetError, HashMismatchError, InvalidInputError, UnsupportedTokenizerError
from engine.text_output import Utf8Output
from engine.text_session import TextOutputSession
from tests.gguf_writer import GgufWriter
from tests.models import DATA, model_path, pin_of
from tests.vocabularies import EOS, LETTERS, MERGES, small

PLENTY = 1 << 20


@pytest.fixture
def session(tmp_path: Path) -> TextOutputSession:
    """A session of the small vocabulary, whose file is gone already."""
    path = small().write(tmp_path / "v.gguf")
    session = TextOutputSession.load(pin_of(path), PLENTY)
    path.unlink()
    return session


def test_pieces_are_exact_bytes(session: TextOutputSession) -> None:
    """Byte tokens are their byte, merged ones their word, special ones their spelling."""
    assert [session.piece(byte) for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert session.piece(len(LETTERS) + MERGES.index("Ġwor ld")) == b" world"
    assert session.piece(EOS) == b"<|im_end|>"
    assert session.vocabulary_size == EOS + 3


def test_control_is_the_declared_type(session: TextOutputSession) -> None:
    """Control tokens are those of type 3; tags of type 4 and words are not."""
    assert [session.is_control(token) for token in (0, EOS - 2, EOS, EOS + 1)] == [False, True, True, False]


@pytest.mark.parametrize("token", [-1, EOS + 3, 2**32])
def test_ids_outside_the_vocabulary(token: int, session: TextOutputSession) -> None:
    """They are refused, and the session goes on."""
    for read in (session.piece, session.is_control):
        with pytest.raises(InvalidInputError, match="outside the vocabulary"):
            read(token)
    assert session.piece(65) == b"A"


def test_requests_are_independent(session: TextOutputSession) -> None:
    """Two requests with their own output each get their own text from one session, pieces interleaved."""
    first, second = Utf8Output(), Utf8Output()
    texts = ["", ""]
    for left, right in zip("hé!".encode(), "€a".encode(), strict=True):
        texts[0] += first.push(session.piece(left))
        texts[1] += second.push(session.piece(right))
    assert [text + output.finish() for text, output in zip(texts, (first, second), strict=True)] == [
        "hé!",
        "€a",
    ]


def test_a_real_vocabulary() -> None:
    """The pieces of ids that another framework made from a text, joined, are that text."""
    session = TextOutputSession.load(pin_of(model_path("trained-qwen35-pq2_0-had")), PLENTY)
    cases = json.loads((DATA / "trained-qwen35.json").read_text("utf-8"))["greedy"].values()
    assert cases
    for case in cases:
        assert b"".join(map(session.piece, case["prompt_ids"])) == case["prompt"].encode()


def test_any_rule_of_cutting_text_will_do(tmp_path: Path) -> None:
    """Output needs no pre-tokenizer and no end-of-sequence id, but tokens spelled in the byte alphabet."""
    path = small(pre="unheard-of", eos=None).write(tmp_path / "v.gguf")
    assert TextOutputSession.load(pin_of(path), PLENTY).piece(65) == b"A"
    other = GgufWriter().add("tokenizer.ggml.model", "string", "llama").write(tmp_path / "l.gguf")
    with pytest.raises(UnsupportedTokenizerError, match="'llama'"):
        TextOutputSession.load(pin_of(other), PLENTY)


def test_pin_and_budget(tmp_path: Path) -> None:
    """The file must be the pinned one, and its header must fit the budget."""
    pin = pin_of(small().write(tmp_path / "v.gguf"))
    with pytest.raises(HashMismatchError):
        TextOutputSession.load(Pin(pin.path, pin.nbytes, "0" * 64), PLENTY)
    with pytest.raises(BudgetError, match="larger than the 1000 bytes"):
        TextOutputSession.load(pin, 1000)
