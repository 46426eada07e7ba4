from __future__ import annotations

import gc
import tracemalloc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import tokenization
from engine.artifact import Pin
from engine.errors import (
    BudgetError,
    ContextError,
    HashMismatchError,
    InvalidInputError,
    MetadataError,
    UnsupportedTokenizerError,
)
from engine.tokenization import TextTokenizationPolicy, TokenBudget, TokenizationSession
from engine.verified_metadata import read_metadata
from tests.gguf_writer import GgufWriter
from tests.models import model_path, pin_of
from tests.vocabularies import EOS, LETTERS, MERGES, small

PLENTY = 1 << 20
SIZE = len(LETTERS) + len(MERGES) + 5
HELLO = len(LETTERS) + MERGES.index("hell o")
LITERAL = TextTokenizationPolicy("literal", "none", TokenBudget(16, 4))


def session_of(
    writer: GgufWriter, folder: Path, policy: TextTokenizationPolicy = LITERAL
) -> TokenizationSession:
    """A session of a file that the writer makes."""
    return TokenizationSession.load(pin_of(writer.write(folder / "v.gguf")), PLENTY, policy)


@pytest.fixture
def session(tmp_path: Path) -> TokenizationSession:
    """A session of the small vocabulary, for prompts of 12 tokens."""
    return session_of(small(), tmp_path)


@pytest.mark.parametrize(
    ("context", "reserved", "field"),
    [
        (0, 0, "context"),
        (-1, 0, "context"),
        (262_145, 0, "context"),
        (8, 8, "reserved_output_tokens"),
        (8, 9, "reserved_output_tokens"),
        (8, -1, "reserved_output_tokens"),
    ],
)
def test_budgets_that_are_none(context: int, reserved: int, field: str) -> None:
    """A context is 1 to 262,144 tokens, and the output may not take all of it."""
    with pytest.raises(InvalidInputError) as caught:
        TokenBudget(context, reserved)
    assert caught.value.field == field


def test_budgets_at_their_bounds() -> None:
    """The largest context and the largest reservation leave what is left."""
    assert TokenBudget(262_144, 0).prompt_tokens == 262_144
    assert TokenBudget(262_144, 262_143).prompt_tokens == 1
    assert TokenBudget(1, 0).prompt_tokens == 1


@pytest.mark.parametrize(
    ("special_input", "insert_special", "field"),
    [("Literal", "none", "special_input"), ("parse", "always", "insert_special")],
)
def test_unknown_policies(special_input: Any, insert_special: Any, field: str) -> None:
    """A policy that is not known is refused before anything uses it."""
    with pytest.raises(InvalidInputError) as caught:
        TextTokenizationPolicy(special_input, insert_special, TokenBudget(8, 0))
    assert caught.value.field == field


def test_encode(session: TokenizationSession) -> None:
    """Text becomes its exact ids with the accounting of the budget; empty text becomes none."""
    encoded = session.encode("hello!")
    assert (encoded.token_ids, encoded.prompt_token_count) == ((HELLO, ord("!")), 2)
    assert (encoded.context, encoded.reserved_output_tokens) == (16, 4)
    assert session.encode("").token_ids == ()
    assert session.vocabulary_size == SIZE


def test_policies_of_text(tmp_path: Path) -> None:
    """Parsing and insertion are as the policy says, and what is inserted counts, also around no text."""
    writer = (
        small()
        .add("tokenizer.ggml.bos_token_id", "u32", EOS - 2)
        .add("tokenizer.ggml.add_bos_token", "bool", True)
        .add("tokenizer.ggml.add_eos_token", "bool", True)
    )
    policy = TextTokenizationPolicy("parse", "model", TokenBudget(4, 0))
    session = session_of(writer, tmp_path, policy)
    assert session.encode("<|im_end|>a").token_ids == (EOS - 2, EOS, ord("a"), EOS)
    assert session.encode("").token_ids == (EOS - 2, EOS)
    with pytest.raises(ContextError, match="context length is 4 tokens, but the prompt has 5 and 0"):
        session.encode("abc")
    assert session.check_tokens([7]).token_ids == (7,)


def test_the_whole_output_allowance_stays_free(session: TokenizationSession) -> None:
    """Twelve tokens fit a context of 16 with 4 reserved, thirteen do not, however they are given."""
    assert session.encode("x" * 12).prompt_token_count == 12
    assert session.validate_tokens([0] * 12) == 12
    for refused in (lambda: session.encode("x" * 13), lambda: session.validate_tokens([0] * 13)):
        with pytest.raises(ContextError, match="16 tokens, but the prompt has 13 and 4"):
            refused()


def test_exact_ids_are_copied_as_they_are(session: TokenizationSession) -> None:
    """Order, duplicates, boundary ids and the empty sequence are kept, and later changes are not seen."""
    ids = [5, 5, EOS, 0, SIZE - 1]
    encoded = session.check_tokens(ids)
    ids.append(9)
    assert encoded.token_ids == (5, 5, EOS, 0, SIZE - 1)
    assert session.check_tokens([]).token_ids == ()
    assert session.validate_tokens([]) == 0


@pytest.mark.parametrize("wrong", [SIZE, -1, 2**32, True, 1.0, "1", None])
def test_ids_outside_the_vocabulary(wrong: Any, session: TokenizationSession) -> None:
    """The index of the first wrong id is named, its value is not; booleans and floats are no ids."""
    for check in (session.check_tokens, session.validate_tokens):
        with pytest.raises(
            InvalidInputError, match=r"^the token id at index 2 is outside the vocabulary of 271"
        ):
            check([1, 2, wrong, wrong])


def test_refused_requests_leave_the_session_usable(session: TokenizationSession) -> None:
    """After every kind of refusal the next request is answered as the first was."""
    before = session.encode("hello")
    for text in ("\ud83d", "x" * 13, "x" * (1 << 20) + "x"):
        with pytest.raises((InvalidInputError, ContextError)):
            session.encode(text)
        assert session.encode("hello") == before


def test_validation_allocates_nothing(tmp_path: Path) -> None:
    """A hundred thousand borrowed ids are checked in memory that would not hold a copy of fifty."""
    policy = replace(LITERAL, budget=TokenBudget(262_144, 0))
    session = session_of(small(), tmp_path, policy)
    ids = [number % SIZE for number in range(100_000)]
    session.validate_tokens(ids[:1])
    tracemalloc.start()
    try:
        assert session.validate_tokens(ids) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 400
    finally:
        tracemalloc.stop()


def test_nothing_of_the_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After loading, the metadata is gone, the file is closed, and its removal changes nothing."""
    seen: list[weakref.ref[Any]] = []

    def watched(*arguments: Any) -> Any:
        metadata = read_metadata(*arguments)
        seen.append(weakref.ref(metadata))
        return metadata

    monkeypatch.setattr(tokenization, "read_metadata", watched)
    session = session_of(small(), tmp_path)
    gc.collect()
    assert [reference() for reference in seen] == [None]
    opened = Path("/proc/self/fd")
    if opened.is_dir():
        assert tmp_path / "v.gguf" not in {link.resolve() for link in opened.iterdir()}
    (tmp_path / "v.gguf").unlink()
    assert session.encode("hello").token_ids == (HELLO,)


def test_the_file_is_verified(tmp_path: Path) -> None:
    """A changed byte in the tensors is noticed, although only the metadata is used."""
    content = bytearray(model_path("trained-qwen35-pq2_0-had").read_bytes())
    pin = pin_of(model_path("trained-qwen35-pq2_0-had"))
    assert TokenizationSession.load(pin, PLENTY, LITERAL).model_sha256 == pin.sha256
    content[-1] ^= 1
    changed = tmp_path / "m.gguf"
    changed.write_bytes(content)
    with pytest.raises(HashMismatchError):
        TokenizationSession.load(Pin(changed, pin.nbytes, pin.sha256), PLENTY, LITERAL)


def test_metadata_beyond_the_budget(tmp_path: Path) -> None:
    """The part of the file that may be held is bounded by the caller."""
    pin = pin_of(small().write(tmp_path / "v.gguf"))
    with pytest.raises(BudgetError, match="larger than the 1000 bytes"):
        TokenizationSession.load(pin, 1000, LITERAL)


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        (small(pre="gpt-4o"), UnsupportedTokenizerError),
        (small(eos=None), MetadataError),
        (GgufWriter().add("tokenizer.ggml.model", "string", "llama"), UnsupportedTokenizerError),
    ],
)
def test_an_incomplete_tokenizer(writer: GgufWriter, error: type[Exception], tmp_path: Path) -> None:
    """A session needs a tokenizer that is supported whole, also if only ids would be asked about."""
    with pytest.raises(error):
        session_of(writer, tmp_path)
