from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from engine.special_input import SpecialInput


def test_order_and_length() -> None:
    """The longest spelling wins where several begin, and the search goes from left to right."""
    parts = SpecialInput({"<a>": 1, "<a>b": 2, "b<": 3, "<": 4})
    assert list(parts.split("x<a>bb<a>")) == ["x", 2, 3, "a>"]
    assert list(parts.split("<a><<a")) == [1, 4, 4, "a"]


def test_text_without_spellings() -> None:
    """Plain text stays one stretch, empty text none, and no spellings find nothing."""
    assert list(SpecialInput({"<a>": 1}).split("plain <a text")) == ["plain <a text"]
    assert list(SpecialInput({"<a>": 1}).split("")) == []
    assert list(SpecialInput({}).split("<a>")) == ["<a>"]
    assert list(SpecialInput({"": 5}).split("abc")) == ["abc"]


def test_signs_that_mean_something_in_patterns() -> None:
    """Spellings that begin with signs special to regular expressions are found as they are."""
    spellings = {"^a": 1, "]": 2, "\\d": 3, "-": 4, "[x": 5}
    assert list(SpecialInput(spellings).split("5^a]\\d-[x")) == ["5", 1, 2, 3, 4, 5]


@given(
    spellings=st.lists(st.text("<ab>", min_size=1, max_size=5), unique=True, max_size=6),
    text=st.text("<ab>c", max_size=40),
)
def test_equals_an_alternation(spellings: list[str], text: str) -> None:
    """The result is that of a regular expression with the longest spelling first."""
    ids = {spelling: index for index, spelling in enumerate(spellings)}
    expected: list[str | int] = []
    longest_first = sorted(spellings, key=len, reverse=True)
    if longest_first:
        for part in re.split(f"({'|'.join(map(re.escape, longest_first))})", text):
            if part:
                expected.append(ids.get(part, part))
    elif text:
        expected = [text]
    assert list(SpecialInput(ids).split(text)) == expected


def test_many_spellings_take_linear_time() -> None:
    """200,000 spellings in the text, whole or broken off, and 100,000 in the vocabulary, take seconds."""
    parts = SpecialInput({f"<|special_{number}|>": number for number in range(100_000)})
    start = time.perf_counter()
    assert list(parts.split("<|special_31|>" * 200_000)) == [31] * 200_000
    assert list(parts.split("<|special_31|" * 200_000)) == ["<|special_31|" * 200_000]
    assert time.perf_counter() - start < 20
