from __future__ import annotations

import pytest

from engine.errors import InvalidInputError, MetadataError
from engine.special_tokens import SpecialTokens
from tests.gguf_writer import GgufWriter
from tests.vocabularies import metadata_of


def special(size: int = 1000, **ids: int | bool) -> SpecialTokens:
    """The declarations in a file with these `tokenizer.ggml` keys."""
    writer = GgufWriter()
    for name, value in ids.items():
        writer.add(f"tokenizer.ggml.{name}", "bool" if isinstance(value, bool) else "u32", value)
    return SpecialTokens.from_metadata(metadata_of(writer), size)


def test_declarations() -> None:
    """Every declared id and flag is read; what is absent stays None."""
    tokens = special(
        eos_token_id=1, bos_token_id=2, eot_token_id=3, eom_token_id=4, padding_token_id=5,
        add_bos_token=True, add_eos_token=False,
    )  # fmt: skip
    assert tokens == SpecialTokens(1000, 1, bos=2, eot=3, eom=4, padding=5, add_bos=True, add_eos=False)
    assert special(eos_token_id=7) == SpecialTokens(1000, 7)


def test_eos_is_required() -> None:
    """A file without an end-of-sequence id is refused, whatever else it declares."""
    with pytest.raises(MetadataError, match="eos_token_id is missing"):
        special(bos_token_id=1, eot_token_id=2)


@pytest.mark.parametrize("name", ["eos", "bos", "eot", "eom", "padding"])
def test_ids_lie_in_the_vocabulary(name: str) -> None:
    """An id equal to the vocabulary's size is refused by its key."""
    with pytest.raises(MetadataError, match=f"{name}_token_id is 10, outside the vocabulary of 10"):
        special(10, **{"eos_token_id": 1, f"{name}_token_id": 10})


def test_ids_are_uint32() -> None:
    """An id of another integer type is refused."""
    writer = GgufWriter().add("tokenizer.ggml.eos_token_id", "i32", 1)
    with pytest.raises(MetadataError, match="eos_token_id"):
        SpecialTokens.from_metadata(metadata_of(writer), 10)


@pytest.mark.parametrize("name", ["add_bos_token", "add_eos_token"])
def test_flags_are_booleans(name: str) -> None:
    """A flag of another type is refused by its key."""
    with pytest.raises(MetadataError, match=name):
        special(eos_token_id=1, **{name: 5})


def test_stop_set() -> None:
    """Declared stops come first, in a fixed order; every id occurs once, where it came first."""
    tokens = special(eos_token_id=9, eom_token_id=4, eot_token_id=9, bos_token_id=2)
    assert tokens.generation(1) == (9, 4)
    assert tokens.generation(1, [7, 4, 3, 7]) == tokens.stop_set([7, 4, 3, 7]) == (9, 4, 7, 3)


@pytest.mark.parametrize("stop", [-1, 1000])
def test_stop_outside_the_vocabulary(stop: int) -> None:
    """A caller's stop outside the vocabulary is refused."""
    with pytest.raises(InvalidInputError, match="outside the vocabulary") as caught:
        special(eos_token_id=1).generation(1, [stop])
    assert caught.value.field == "stop_tokens"


def test_stop_bound() -> None:
    """256 different stops are admitted, one more is not; repetitions do not count."""
    tokens = special(eos_token_id=0)
    assert len(tokens.generation(1, [*range(256), *range(256)])) == 256
    with pytest.raises(InvalidInputError, match="257 different stop tokens"):
        tokens.generation(1, range(257))


def test_a_generation_leaves_room_for_a_prompt() -> None:
    """Of the largest context at least one token is the prompt's, and an answer has at least one too."""
    tokens = special(eos_token_id=9)
    assert tokens.generation(262_143) == (9,)
    for limit in (0, 262_144):
        with pytest.raises(InvalidInputError, match="expected 1 to 262143") as caught:
            tokens.generation(limit)
        assert caught.value.field == "max_tokens"


@pytest.mark.parametrize("flag", [True, False])
def test_insertion_flags_do_not_touch_the_stop_set(flag: bool) -> None:
    """Whether a token is inserted says nothing about whether it ends an answer."""
    tokens = special(eos_token_id=9, eot_token_id=4, bos_token_id=2, add_bos_token=flag, add_eos_token=flag)
    assert tokens.generation(1) == (9, 4)
