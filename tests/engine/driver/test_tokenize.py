from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.driver.commands import Run, pinned
from tests.gguf_writer import GgufWriter
from tests.models import DATA, model_path
from tests.vocabularies import EOS, small

TRAINED = model_path("trained-qwen35-pq2_0-had")
GREEDY: dict[str, dict[str, Any]] = json.loads((DATA / "trained-qwen35.json").read_text("utf-8"))["greedy"]


@pytest.mark.parametrize("case", GREEDY.values(), ids=GREEDY.keys())
def test_golden_ids(case: dict[str, Any], run: Run) -> None:
    """Text with parsed markers gives the ids that the training framework used."""
    result = run(
        "--mode", "tokenize", *pinned(TRAINED), "--prompt", case["prompt"], "--special-input", "parse"
    )
    assert (result.code, result.err, len(result.records)) == (0, "", 1)
    assert result.records[0]["token_ids"] == case["prompt_ids"]


def test_record(run: Run) -> None:
    """One record has the ids, their count, the reservation, the policies and the file."""
    pin = pinned(TRAINED)
    result = run("--mode", "tokenize", *pin, "--tokens", "5,5,7", "--context", "20", "--max-tokens", "17")
    assert result.records == [
        {
            "type": "tokenization",
            "token_ids": [5, 5, 7],
            "token_count": 3,
            "context": 20,
            "reserved_output_tokens": 17,
            "input_mode": "tokens",
            "model": {"sha256": pin[5], "bytes": int(pin[3]), "architecture": "qwen35", "name": "tiny demo"},
        }
    ]
    text = run("--mode", "tokenize", *pin, "--prompt", "x", "--insert-special", "model").records[0]
    assert [text[name] for name in ("context", "reserved_output_tokens", "input_mode")] == [2048, 0, "text"]
    assert [text[name] for name in ("special_input", "insert_special")] == ["literal", "model"]


def test_insertion(run: Run, tmp_path: Path) -> None:
    """True flags of the model insert BOS and EOS into text, on request, and the ids count."""
    writer = (
        small()
        .add("general.architecture", "string", "qwen2")
        .add("tokenizer.ggml.add_eos_token", "bool", True)
    )
    pin = pinned(writer.write(tmp_path / "v.gguf"))
    base = ["--mode", "tokenize", *pin, "--prompt", "a", "--context"]
    plain = run(*base, "10").records[0]["token_ids"]
    inserted = run(*base, "10", "--insert-special", "model").records[0]["token_ids"]
    assert inserted == [*plain, EOS]
    exact = run(*base[:-3], "--tokens", f"97,{EOS}", "--context", "10")
    assert exact.records[0]["token_ids"] == [97, EOS]
    assert run(*base, "1", "--insert-special", "model").code == 2


def test_no_template_is_applied(run: Run, tmp_path: Path) -> None:
    """Text becomes its own ids alone, also where the file has a chat template and names its boundaries."""
    writer = (
        small()
        .add("tokenizer.chat_template", "string", "<|im_start|>user {{ messages }}<|im_end|>")
        .add("tokenizer.ggml.bos_token_id", "u32", EOS - 2)
        .add("tokenizer.ggml.add_bos_token", "bool", True)
    )
    pin = pinned(writer.write(tmp_path / "v.gguf"))
    result = run("--mode", "tokenize", *pin, "--prompt", "hi!", "--context", "5")
    assert result.records[0]["token_ids"] == list(b"hi!")


def test_vocabulary_file(run: Run, tmp_path: Path) -> None:
    """A file without tensors or a known architecture can be tokenized with, given a context."""
    pin = pinned(small().add("general.architecture", "string", "other").write(tmp_path / "v.gguf"))
    assert run("--mode", "tokenize", *pin, "--prompt", "a", "--context", "5").code == 0
    result = run("--mode", "tokenize", *pin, "--prompt", "a")
    assert result.code == 5
    assert "other.context_length" in result.error


def test_ids_need_no_tokenizer(run: Run, tmp_path: Path) -> None:
    """Exact ids are checked against the vocabulary alone, whatever the tokenizer is."""
    writer = GgufWriter().add("tokenizer.ggml.model", "string", "llama")
    pin = pinned(writer.add("tokenizer.ggml.tokens", "[string]", ["a", "b"]).write(tmp_path / "v.gguf"))
    base = ["--mode", "tokenize", *pin, "--context", "5"]
    assert run(*base, "--tokens", "1,0").records[0]["token_ids"] == [1, 0]
    result = run(*base, "--tokens", "1,2")
    assert (result.code, "token id 2 is outside the vocabulary of 2" in result.error) == (2, True)
    assert run(*base, "--prompt", "a").code == 5


def test_memory_bounds_the_header(run: Run) -> None:
    """The memory budget bounds what is kept of the file; the file itself may be larger."""
    base = ["--mode", "tokenize", *pinned(TRAINED), "--prompt", "a", "--memory-bytes"]
    assert run(*base, "100000").code == 0
    result = run(*base, "10000")
    assert result.code == 3
    assert "larger than the 10000 bytes" in result.error


def test_too_many_tokens(run: Run) -> None:
    """Ids and reservation together must fit the context."""
    result = run("--mode", "tokenize", *pinned(TRAINED), "--prompt", "one two three", "--context", "2")
    assert (result.code, result.out) == (2, b"")
    assert "maximum context length is 2 tokens" in result.error


def test_whole_file_is_verified(run: Run, tmp_path: Path) -> None:
    """A changed byte in the tensors is noticed although only the header is used."""
    content = bytearray(TRAINED.read_bytes())
    pin = pinned(TRAINED)
    content[-1] ^= 1
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert run("--mode", "tokenize", "--model", path, *pin[2:], "--prompt", "a").code == 4
