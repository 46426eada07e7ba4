from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.workers.swift_protocol import MAX_DELTA_BYTES, split_text

BOUND = 16_384


@pytest.mark.parametrize("character", ["a", "é", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_parts_of_a_long_text(character: str, shift: int) -> None:
    """At the bound of 16,384 bytes a character goes into the next part whole, wherever it would be cut."""
    size = len(character.encode())
    text = "a" * shift + character * (2 * BOUND // size)
    parts = list(split_text(text))
    assert MAX_DELTA_BYTES == BOUND
    assert "".join(parts) == text
    lengths = [len(part.encode()) for part in parts]
    # All parts but the last lack at most the bytes of a character that did not fit.
    assert all(BOUND - size < length <= BOUND for length in lengths[:-1])
    assert lengths[0] == shift + (BOUND - shift) // size * size


def test_short_texts() -> None:
    """What fits is one part; nothing is no part."""
    assert list(split_text("x" * BOUND)) == ["x" * BOUND]
    assert list(split_text("x" * (BOUND + 1))) == ["x" * BOUND, "x"]
    assert list(split_text("")) == []


@given(st.text(), st.integers(4, 12))
def test_any_text(text: str, nbytes: int) -> None:
    """The parts join to the text, and none is empty or too long."""
    parts = list(split_text(text, nbytes))
    assert "".join(parts) == text
    assert all(1 <= len(part.encode()) <= nbytes for part in parts)
