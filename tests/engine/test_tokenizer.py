from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.bpe import Bpe
from engine.errors import InvalidInputError, MetadataError, UnsupportedTokenizerError
from engine.metadata import Metadata
from engine.special_tokens import SpecialTokens
from engine.tokenizer import Tokenizer
from engine.vocabulary import Vocabulary
from tests.gguf_writer import GgufWriter
from tests.vocabularies import (
    DATA,
    EOS,
    LETTERS,
    metadata_of,
    model_tokenizer,
    real_metadata,
    small,
    tokenizer,
)

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (DATA / "tokenizer" / "llama-cpp-vectors.json").read_text("utf-8")
)
SMOLLM2: dict[str, dict[str, Any]] = json.loads((DATA / "smollm2-135m-q4_1.json").read_text("utf-8"))
TRAINED: dict[str, Any] = json.loads((DATA / "trained-qwen35.json").read_text("utf-8"))


def small_tokenizer(writer: GgufWriter | None = None) -> Tokenizer:
    """The tokenizer of a small made-up vocabulary."""
    return Tokenizer.from_metadata(metadata_of(writer or small()))


@pytest.mark.parametrize(("name", "count"), [("qwen2", 47), ("qwen35", 51), ("refact", 47)])
def test_vectors_of_another_engine(name: str, count: int) -> None:
    """Every published vector encodes to the same ids and decodes to the same text."""
    vectors = VECTORS[name]
    assert len(vectors) == count
    for vector in vectors:
        assert tokenizer(name).encode(vector["text"]) == vector["ids"]
        assert tokenizer(name).vocabulary.decode(vector["ids"]).decode() == vector["text"]


def test_rules_differ_on_combining_marks() -> None:
    """Under two rules, a merge of a letter with a mark applies only where marks are letters."""
    letter_and_mark = ("e Ì",)  # 0x65 and 0xCC, the first byte of U+0301
    ids = {
        pre: small_tokenizer(small(letter_and_mark, pre=pre, eos=0)).encode("e\u0301")
        for pre in ("qwen2", "qwen35")
    }
    assert ids == {"qwen2": [0x65, 0xCC, 0x81], "qwen35": [256, 0x81]}


@pytest.mark.parametrize("name", sorted(SMOLLM2))
def test_smollm2_prompts(name: str) -> None:
    """Prompts of a real model encode to the ids that another engine computed, and its answers decode."""
    case = SMOLLM2[name]
    policy = "parse" if case["parse_special"] else "literal"
    smollm2 = tokenizer("smollm2")
    assert smollm2.encode(case["prompt"], policy) == case["prompt_ids"]  # type: ignore[arg-type]
    assert smollm2.vocabulary.decode(case["greedy_ids"]).decode() == case["greedy_text"]


@pytest.mark.parametrize("question", sorted(TRAINED["greedy"]))
def test_trained_model_prompts(question: str) -> None:
    """The prompts of the small trained model encode to the ids it was trained with."""
    case = TRAINED["greedy"][question]
    trained = model_tokenizer("trained-qwen35-ptq1_0-had.gguf")
    assert trained.encode(case["prompt"], "parse") == case["prompt_ids"]
    assert trained.vocabulary.decode(case["greedy_ids"]).decode() == case["text"]


@pytest.mark.parametrize("name", ["qwen2", "qwen35", "refact", "smollm2"])
def test_policies_on_every_special_spelling(name: str) -> None:
    """Parsed, a special spelling is its one id; literally, it holds no special id at all."""
    model = tokenizer(name)
    special = model.vocabulary.special
    assert special
    for spelling, token in special.items():
        assert model.encode(spelling, "parse") == [token]
        assert model.control_id(spelling) == token
        literal = model.encode(spelling, "literal")
        assert not set(literal) & set(special.values())
        assert model.vocabulary.decode(literal).decode() == spelling


def test_control_id_is_exact() -> None:
    """Only the whole spelling of a special token has a control id; ordinary tokens have none."""
    model = tokenizer("smollm2")
    assert model.control_id("<|im_start|>") == 1
    assert model.control_id("<|im_start|") is None
    assert model.control_id("the") is None
    assert model.control_id("") is None


def test_special_between_text() -> None:
    """Text around a parsed token is pre-tokenized as if it stood alone."""
    model = small_tokenizer()
    hello = LETTERS.index("h"), len(LETTERS) + 3
    assert model.encode("hello<|im_end|> world", "parse") == [hello[1], EOS, len(LETTERS) + 8]
    assert model.encode("<think><think>", "parse") == [EOS + 1, EOS + 1]


@pytest.mark.parametrize("name", ["qwen2", "qwen35"])
@settings(deadline=None)
@given(text=st.text())
def test_round_trip(name: str, text: str) -> None:
    """Decoding gives back any text, bytes and all, under the literal policy."""
    model = tokenizer(name)
    assert model.vocabulary.decode(model.encode(text)) == text.encode()


@settings(deadline=None)
@given(text=st.text())
def test_round_trip_parsed(text: str) -> None:
    """Where the text has no special spelling both policies give the same ids, and with one it still
    decodes to the same text."""
    model = small_tokenizer()
    plain = text.replace("<", "")
    assert model.encode(plain, "parse") == model.encode(plain, "literal")
    marked = f"<|im_start|>{text}</think>"
    assert model.vocabulary.decode(model.encode(marked, "parse")).decode() == marked


# SmolLM2's vocabulary has no token for these bytes of UTF-8 text.
SMOLLM2_LACKS = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}


@settings(deadline=None)
@given(text=st.text())
def test_round_trip_or_refusal(text: str) -> None:
    """With a vocabulary that lacks bytes, text comes back exactly or is refused, never altered."""
    model = tokenizer("smollm2")
    if SMOLLM2_LACKS & set(text.encode()):
        with pytest.raises(InvalidInputError, match="which this vocabulary lacks"):
            model.encode(text)
    else:
        assert model.vocabulary.decode(model.encode(text)) == text.encode()


def test_no_normalisation() -> None:
    """Composed and decomposed characters stay different."""
    model = tokenizer("qwen35")
    assert model.encode("é") != model.encode("e\u0301")


@pytest.mark.parametrize(
    ("flags", "policy", "before", "after"),
    [
        ({}, "model", [], []),
        ({"add_bos_token": False, "add_eos_token": False}, "model", [], []),
        ({"add_bos_token": True}, "model", [EOS - 2], []),
        ({"add_eos_token": True}, "model", [], [EOS]),
        ({"add_bos_token": True, "add_eos_token": True}, "model", [EOS - 2], [EOS]),
        ({"add_bos_token": True, "add_eos_token": True}, "none", [], []),
    ],
)
def test_insertion(flags: dict[str, bool], policy: Any, before: list[int], after: list[int]) -> None:
    """Only flags that are true insert their token, and only when asked to; ids already there stay."""
    writer = small().add("tokenizer.ggml.bos_token_id", "u32", EOS - 2)
    for name, value in flags.items():
        writer.add(f"tokenizer.ggml.{name}", "bool", value)
    model = small_tokenizer(writer)
    text = "<|endoftext|>hello<|im_end|>"
    inner = [EOS - 2, len(LETTERS) + 3, EOS]
    assert model.encode_with_special_tokens(text, "parse", policy) == before + inner + after
    assert model.encode_with_special_tokens("", "literal", policy) == before + after


def test_insertion_without_a_token() -> None:
    """A true flag without its id is refused when insertion is asked for, and harmless otherwise."""
    model = small_tokenizer(small().add("tokenizer.ggml.add_bos_token", "bool", True))
    assert model.encode_with_special_tokens("h") == [ord("h")]
    with pytest.raises(InvalidInputError, match="declares none") as caught:
        model.encode_with_special_tokens("h", insert_special="model")
    assert caught.value.field == "insert_special"


def test_insertion_by_given_declarations() -> None:
    """Declarations of the caller's stand in for the file's, if they are for as many tokens."""
    model = small_tokenizer(small().add("tokenizer.ggml.add_eos_token", "bool", True))
    given_ones = SpecialTokens(model.vocabulary.size, eos=7, bos=5, add_bos=True, add_eos=False)
    assert model.encode_with_special_tokens("h", insert_special="model", special=given_ones) == [5, ord("h")]
    assert model.encode_with_special_tokens("h", special=given_ones) == [ord("h")]
    assert model.encode_with_special_tokens("h", insert_special="model") == [ord("h"), EOS]
    other = SpecialTokens(model.vocabulary.size + 1, eos=7)
    with pytest.raises(InvalidInputError, match="a vocabulary of 272 tokens, but the tokenizer has 271"):
        model.encode_with_special_tokens("h", special=other)


@pytest.mark.parametrize("text", ["\ud83d text", "a\udc00b"])
@pytest.mark.parametrize("policy", ["literal", "parse"])
def test_lone_surrogates(text: str, policy: Any) -> None:
    """Half of a surrogate pair is refused, not encoded and not a crash."""
    with pytest.raises(InvalidInputError, match="surrogate"):
        small_tokenizer().encode(text, policy)


def test_pieces_are_encoded_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list of pieces is made first: those before one that is too long are merged before it is found."""
    seen: list[bytes] = []
    encode_piece = Bpe.encode_piece

    def noted(bpe: Bpe, piece: bytes) -> tuple[int, ...]:
        seen.append(piece)
        return encode_piece(bpe, piece)

    monkeypatch.setattr(Bpe, "encode_piece", noted)
    with pytest.raises(InvalidInputError, match="65537 bytes"):
        small_tokenizer(small(pre="qwen35")).encode("12" + "x" * 65537)
    assert seen == [b"1", b"2"]


def test_input_bound() -> None:
    """1 MiB of UTF-8 is admitted, one byte more is not; bytes are counted, not characters."""
    model = small_tokenizer()
    line = "é" * 15 + "\n\n"
    assert len(model.encode(line * (1 << 15))) == 31 * (1 << 15)
    with pytest.raises(InvalidInputError, match="has 1048577 bytes"):
        model.encode(line * (1 << 15) + "x")


@pytest.mark.parametrize("character", ["a", "1", " ", "\n", "!", "é", "中", "\u0301", "<"])
def test_a_mebibyte_of_one_character(character: str) -> None:
    """1 MiB of one character ends at once, in a refusal that names the bound it meets."""
    text = character * ((1 << 20) // len(character.encode()))
    start = time.perf_counter()
    for policy in ("literal", "parse"):
        with pytest.raises(InvalidInputError, match=r"at most 65536|more than 262144"):
            tokenizer("qwen35").encode(text, policy)
    assert time.perf_counter() - start < 20


def test_many_special_spellings() -> None:
    """A text full of special spellings, whole or broken off, encodes in linear time."""
    model = tokenizer("qwen35")
    start = time.perf_counter()
    assert model.encode("<|im_end|>" * 100_000, "parse") == [151645] * 100_000
    assert len(model.encode("<|im_end|" * 50_000, "parse")) > 50_000
    assert time.perf_counter() - start < 20


def test_the_vocabulary_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of a tokenizer share one vocabulary."""
    checks: list[Metadata] = []
    from_metadata = Vocabulary.from_metadata

    def counted(metadata: Metadata) -> Vocabulary:
        checks.append(metadata)
        return from_metadata(metadata)

    monkeypatch.setattr(Vocabulary, "from_metadata", counted)
    small_tokenizer()
    assert len(checks) == 1


def test_threads_may_share_a_tokenizer() -> None:
    """Four of them at once get the ids of another engine, each its own."""
    vectors = VECTORS["qwen35"] * 8
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(tokenizer("qwen35").encode, [vector["text"] for vector in vectors]))
    assert found == [vector["ids"] for vector in vectors]


def test_large_vocabulary_loads_quickly() -> None:
    """Parsing and building a tokenizer of 151,936 tokens takes well under two seconds."""
    start = time.perf_counter()
    metadata = real_metadata("qwen35")
    Tokenizer.from_metadata(metadata)
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("key", "value", "error", "message"),
    [
        ("tokenizer.ggml.model", "llama", UnsupportedTokenizerError, "model is 'llama'"),
        ("tokenizer.ggml.pre", "deepseek-llm", UnsupportedTokenizerError, "pre-tokenizer 'deepseek-llm'"),
        ("tokenizer.ggml.model", None, MetadataError, "tokenizer.ggml.model"),
        ("tokenizer.ggml.pre", None, MetadataError, "tokenizer.ggml.pre"),
        ("tokenizer.ggml.tokens", None, MetadataError, "tokenizer.ggml.tokens"),
        ("tokenizer.ggml.merges", None, MetadataError, "tokenizer.ggml.merges"),
        ("tokenizer.ggml.eos_token_id", None, MetadataError, "eos_token_id"),
    ],
)
def test_what_a_file_must_declare(key: str, value: str | None, error: type[Exception], message: str) -> None:
    """Missing or unknown declarations are refused by name."""
    complete = metadata_of(small())
    writer = GgufWriter()
    for name in complete:
        copy_key(writer, complete, name, value if name == key else "keep")
    with pytest.raises(error, match=message):
        Tokenizer.from_metadata(metadata_of(writer))


def copy_key(writer: GgufWriter, metadata: Metadata, name: str, value: str | None) -> None:
    """Copy one key ("keep"), leave it out (None) or write another string."""
    if value is None:
        return
    if value != "keep":
        writer.add(name, "string", value)
    elif name.endswith("_id"):
        writer.add(name, "u32", metadata.uint(name))
    elif name.endswith("type"):
        writer.add(name, "[i32]", metadata.integers(name))
    elif name.endswith(("tokens", "merges")):
        writer.add(name, "[string]", metadata.strings(name))
    else:
        writer.add(name, "string", metadata.string(name))
