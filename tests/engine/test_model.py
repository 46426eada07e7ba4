from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.artifact import Pin
from engine.decoder import Step
from engine.errors import (
    BudgetError,
    EngineError,
    HashMismatchError,
    InvalidInputError,
    MetadataError,
    UnsupportedArchitectureError,
    UnsupportedContractError,
    UnsupportedTemplateError,
    UnsupportedTokenizerError,
)
from engine.gguf import parse_header
from engine.model import Model, load_model, resolve_context
from tests.gguf_writer import GgufWriter
from tests.models import build_decoder, golden_ids, model_path, pin_of, transformer_file


def load(path: Path, **options: Any) -> Model:
    """A model by the NumPy backend, with plenty of memory unless said otherwise."""
    chosen: dict[str, Any] = {"memory_bytes": 1 << 26, "kernel": "numpy"} | options
    return load_model(pin_of(path), **chosen)


@pytest.fixture
def tiny() -> Model:
    """A golden model as any caller loads it."""
    return load(model_path("tiny-qwen35-pq2_0-had"), activation_bits=8, context=100, threads=2)


def test_identity_names_bytes_graph_and_arithmetic(tiny: Model) -> None:
    """What a result depends on, and nothing else."""
    pin = pin_of(model_path("tiny-qwen35-pq2_0-had"))
    identity = tiny.identity
    assert (identity.sha256, identity.nbytes) == (pin.sha256, pin.nbytes)
    assert (identity.architecture, identity.name) == ("qwen35", "tiny-qwen35-pq2_0-had")
    assert identity.contract == "qwen35:canon-2/8"
    assert tiny.decoder.identity == str(identity) == f"{pin.sha256}:qwen35:canon-2/8"
    other = load(model_path("tiny-qwen35-pq2_0-had"), threads=1)
    assert other.identity.contract == "qwen35:canon-2/16"


def test_a_loaded_model_computes_what_its_file_means(tiny: Model) -> None:
    """The parts put together by hand give the same bytes."""
    by_hand = build_decoder(model_path("tiny-qwen35-pq2_0-had").read_bytes(), bits=8)
    ids = golden_ids()
    found = [
        decoder.evaluate([Step(decoder.new_state(), ids, "all")])[0] for decoder in (tiny.decoder, by_hand)
    ]
    assert found[0].tobytes() == found[1].tobytes()
    assert tiny.decoder.vocabulary_size == tiny.tokenizer.vocabulary.size == 1024
    assert tiny.decoder.context == 100


def test_the_default_kernel_gives_the_same_bits() -> None:
    """Whatever this machine's best backend is."""
    path, ids = model_path("tiny-qwen3-q1_0"), golden_ids()
    found = [
        model.decoder.evaluate([Step(model.decoder.new_state(), ids)])[0]
        for model in (load(path), load(path, kernel=None))
    ]
    assert found[0].tobytes() == found[1].tobytes()


def test_memory_that_the_file_leaves_may_hold_expanded_weights() -> None:
    """The budget is for both together."""
    path = model_path("tiny-qwen3-q1_0")
    nbytes = path.stat().st_size
    assert load(path, memory_bytes=nbytes + 12_345).kernels.expansion_bytes == 12_345
    assert load(path, memory_bytes=nbytes).kernels.expansion_bytes == 0
    with pytest.raises(BudgetError, match=f"{nbytes} bytes, but only {nbytes - 1}"):
        load(path, memory_bytes=nbytes - 1)


def test_progress_reaches_the_end() -> None:
    """Bytes done and in all, while the file is read."""
    path = model_path("tiny-qwen3-q1_0")
    seen: list[tuple[int, int]] = []
    load(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size,) * 2


def test_nothing_is_parsed_before_the_hash_agreed(tmp_path: Path) -> None:
    """A file that is no GGUF at all fails by its hash."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(HashMismatchError):
        load_model(Pin(path, 11, "0" * 64), memory_bytes=100)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"activation_bits": 12}, InvalidInputError, "activation bits are 12"),
        ({"threads": 0}, InvalidInputError, "threads are 0"),
        ({"threads": 257}, InvalidInputError, "threads are 257"),
        ({"kernel": "gpu"}, InvalidInputError, "'gpu'"),
        ({"context": 0}, InvalidInputError, "context 0 is not between 1 and the model's 512"),
        ({"context": 513}, InvalidInputError, "context 513"),
        ({"chat_template": "jinja"}, UnsupportedTemplateError, "jinja"),
    ],
)
def test_impossible_options_are_refused(
    options: dict[str, Any], error: type[EngineError], words: str
) -> None:
    """With the value in the message."""
    with pytest.raises(error, match=words):
        load(model_path("tiny-qwen3-q1_0"), **options)


def test_options_are_checked_before_the_file_is_read() -> None:
    """A wrong number does not cost a minute of hashing first."""
    nowhere = Pin(Path("/nowhere/model.gguf").absolute(), 1, "0" * 64)
    wrong: list[dict[str, Any]] = [{"activation_bits": 4}, {"threads": -1}, {"kernel": "gpu"}]
    for options in wrong:
        with pytest.raises(InvalidInputError):
            load_model(nowhere, memory_bytes=1, **options)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ((b"qwen3", b"bert5"), UnsupportedArchitectureError, "'bert5'; implemented: llama, qwen3, qwen35"),
        ((b"tokenizer.ggml.pre", b"tokenizer.ggml.prX"), MetadataError, "tokenizer.ggml.pre"),
        ((b"\0gpt2", b"\0bert"), UnsupportedTokenizerError, "bert"),
        ((b"qwen3.block_count", b"qwen3.block_kount"), MetadataError, "qwen3.block_count"),
        ((b"blk.1.ffn_up", b"blk.1.ffn_op"), MetadataError, "blk.1.ffn_up.weight is missing"),
    ],
)
def test_files_that_say_something_else_are_refused(
    tmp_path: Path, change: tuple[bytes, bytes], error: type[EngineError], words: str
) -> None:
    """By the key, tensor or value that is missing or unknown."""
    path = tmp_path / "model.gguf"
    path.write_bytes(transformer_file("qwen3").build().replace(*change))
    with pytest.raises(error, match=words):
        load(path)


def test_an_unknown_prism_contract_is_refused(tmp_path: Path) -> None:
    """It might change what the weights mean."""
    path = transformer_file("qwen3").add("prism.spin.version", "u32", 1).write(tmp_path / "model.gguf")
    with pytest.raises(UnsupportedContractError, match=r"prism\.spin\.version"):
        load(path)


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    """There must be as many tokens as rows of the embedding."""
    path = transformer_file("qwen3", spare_rows=1).write(tmp_path / "model.gguf")
    with pytest.raises(
        MetadataError, match=r"token_embd.weight has shape \[256, 272\], expected \[256, 271\]"
    ):
        load(path)


def test_the_default_context_is_the_models_up_to_4096() -> None:
    """A context of a quarter million tokens is only taken when it is asked for."""

    def resolve(longest: int, wanted: int | None) -> int:
        data = GgufWriter().add("qwen35.context_length", "u32", longest).build()
        return resolve_context(parse_header(data, len(data)).metadata, "qwen35", wanted)

    assert resolve(512, None) == 512
    assert resolve(262_144, None) == 4096
    assert resolve(262_144, 262_144) == 262_144
    with pytest.raises(InvalidInputError):
        resolve(262_144, 262_145)


def test_the_chat_format_is_recognised_or_named() -> None:
    """By the template's hash, by name for a file without one, and not at all where neither fits."""
    recognised = load(model_path("tiny-qwen3-q1_0")).chat
    assert recognised is not None
    assert recognised.name == "chatml"
    trained = model_path("trained-qwen35-pq2_0-had")
    assert load(trained).chat is None
    named = load(trained, chat_template="chatml-think").chat
    assert named is not None
    assert named.name == "chatml-think"
