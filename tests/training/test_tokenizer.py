from __future__ import annotations

import pytest
import regex

from engine.pretokenizer import PreTokenizer
from training.tokenizer import PATTERN, make_tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "What is 17 + 3?\n\nI'll say: twenty, isn't it?",
        "  <function=calculator>\n<parameter=expression>\n3 * 14\n</parameter>\n",
        '{"name": "get_weather", "n": [1, 22]}\n\n',
        "naïve e\u0301 ſ 'S 'LL\t\t x  \r\n  y",
    ],
)
def test_the_pattern_is_the_rule(text: str) -> None:
    """Merges are learned within the pieces that the engine cuts text into."""
    pieces = [match.group() for match in regex.finditer(PATTERN, text)]
    assert pieces == PreTokenizer("qwen35").split(text)


def test_layout_of_the_vocabulary() -> None:
    """256 bytes, the merges in order, and nine special tokens, of which three are control tokens."""
    model = make_tokenizer(["a s", "as s"])
    assert model.vocabulary.size == 256 + 2 + 9
    assert model.encode("ass") == [257]
    assert model.special.eos == model.control_id("<|im_end|>") == 260
    assert model.special.bos == model.control_id("<|endoftext|>") == 258
    assert not model.special.add_bos
    assert [model.vocabulary.is_control(token) for token in range(258, 267)] == [True] * 3 + [False] * 6
    assert model.control_id("</think>") == 266
