from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from engine import catalogue
from engine.catalogue import PublishedFile
from engine.manifest import read_manifest
from tests.engine.driver.commands import Result, Run
from tests.gguf_writer import F32, Q2_0, GgufWriter, ternary_blocks
from tests.models import model_path, pin_of

TRAINED = model_path("trained-qwen35-pq2_0-had")


def facts(result: Result) -> dict[str, str]:
    """The comment lines of an identification."""
    assert result.code == 0, result.err
    lines = result.out.decode("utf-8").splitlines()
    return dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))


def test_facts(run: Run) -> None:
    """Length, hash, architecture, types, counts and vocabulary of a real file."""
    pin = pin_of(TRAINED)
    assert facts(run("identify", TRAINED)) == {
        "length": f"{pin.nbytes} bytes",
        "SHA-256": pin.sha256,
        "published as": "no file that this program knows",
        "format": "GGUF version 3, 40 metadata keys",
        "architecture": "qwen35 (supported)",
        "name": "'tiny demo'",
        "tensors": "56",
        "types": "27 PQ2_0 (id 142), 23 F32 (id 0), 6 BF16 (id 30)",
        "layout": "proved by the offsets",
        "contracts": "prism.hadamard",
        "vocabulary": "1024 tokens, model 'gpt2', pre-tokenizer 'qwen35'",
        "chat template": "none",
    }


def test_output_is_a_manifest(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `identify` prints can be saved as a manifest anywhere; a relative path is made absolute."""
    monkeypatch.chdir(TRAINED.parent)
    path = tmp_path / "saved.toml"
    path.write_bytes(run("identify", TRAINED.name).out)
    assert read_manifest(path).pin == pin_of(TRAINED)


def test_published_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose hash is listed is called by its name, in the facts and in the manifest."""
    path = GgufWriter().add("general.architecture", "string", "qwen3").write(tmp_path / "renamed.gguf")
    pin = pin_of(path)
    known = PublishedFile("Known-1B", pin.nbytes, pin.sha256)
    monkeypatch.setattr(catalogue, "published_files", lambda: (known,))
    result = run("identify", path)
    assert facts(result)["published as"] == "Known-1B"
    assert tomllib.loads(result.out.decode())["name"] == "Known-1B"


def test_groups_of_id_42(run: Run, tmp_path: Path) -> None:
    """The facts say in which groups id 42 is stored."""
    for group, words in ((64, "1 Q2_0 (id 42, groups of 64)"), (128, "1 PQ2_0 (id 42, groups of 128)")):
        blocks = ternary_blocks(256 * 40 // group, group)
        writer = GgufWriter().tensor("a", (256, 40), Q2_0, blocks).tensor("b", (4,), F32)
        assert words in facts(run("identify", writer.write(tmp_path / "m.gguf")))["types"]


def test_files_that_cannot_run(run: Run, tmp_path: Path) -> None:
    """Any readable GGUF is described; what does not fit is said line by line."""
    writer = (
        GgufWriter()
        .add("general.architecture", "string", "gemma\n# evil")
        .add("general.name", "u32", 7)
        .add("prism.future.version", "u32", 1)
        .add("tokenizer.ggml.tokens", "[u8]", [1])
        .add("tokenizer.chat_template", "string", "{{ evil }}")
        .tensor("x", (256,), 40, bytes(64))
    )
    result = run("identify", writer.write(tmp_path / "m.gguf"))
    found = facts(result)
    assert found["architecture"].startswith("'gemma\\n# evil' (not supported; there are graphs for llama")
    assert "of type UINT32" in found["name"]
    assert found["types"] == "1 type 40 (not supported)"
    assert found["layout"].startswith("refused: tensor 'x' has the unsupported type 40 (NVFP4)")
    assert "'prism.future.version'" in found["contracts"]
    assert "array of uint8" in found["vocabulary"]
    assert "not a known one" in found["chat template"]
    assert set(tomllib.loads(result.out.decode())) == {"schema", "path", "bytes", "sha256"}


def test_empty_header(run: Run, tmp_path: Path) -> None:
    """A GGUF without any key is still described."""
    found = facts(run("identify", GgufWriter().write(tmp_path / "m.gguf")))
    assert (found["tensors"], found["types"], found["name"]) == ("0", "none", "none")
    assert found["vocabulary"].startswith("0 tokens")


def test_pin(run: Run, tmp_path: Path) -> None:
    """`pin` writes the manifest beside the model, with a relative path, and says where it is."""
    model = tmp_path / "model.v1.gguf"
    model.write_bytes(TRAINED.read_bytes())
    result = run("pin", model)
    written = tmp_path / "model.v1.gguf.toml"
    assert (result.code, result.out.decode()) == (0, f"{written}\n")
    assert 'path = "model.v1.gguf"\n' in written.read_text()
    assert read_manifest(written).pin == pin_of(model)
    assert b"\r" not in written.read_bytes()


def test_pin_elsewhere(run: Run, tmp_path: Path) -> None:
    """A manifest in another folder names the model by its absolute path."""
    output = tmp_path / "m.toml"
    assert run("pin", "--output", output, TRAINED).code == 0
    assert read_manifest(output).pin == pin_of(TRAINED)


def test_pin_replaces_nothing(run: Run, tmp_path: Path) -> None:
    """An existing file is a refusal: a pin is a decision."""
    output = tmp_path / "m.toml"
    output.write_text("mine")
    result = run("pin", TRAINED, "--output", output)
    assert (result.code, output.read_text()) == (2, "mine")
    assert "exists already" in result.error
    result = run("pin", TRAINED, "--output", tmp_path / "no" / "m.toml")
    assert (result.code, "cannot write" in result.error) == (2, True)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"<html>", 5, "web page"),
        (b"", 4, "is empty"),
        (GgufWriter(1).build(), 5, "version 1"),
        (GgufWriter().add("a", "u8", 1).build()[:-1], 5, "was the download complete"),
        (GgufWriter().add("a", "u8", 1).add("a", "u8", 1).build(), 5, "appears twice"),
    ],
)
def test_unreadable(content: bytes, code: int, words: str, run: Run, tmp_path: Path) -> None:
    """What is no readable GGUF is named as what it is, and gets no manifest."""
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    for command in ("identify", "pin"):
        result = run(command, path)
        assert (result.code, result.out) == (code, b"")
        assert words in result.error
    assert [file.name for file in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["identify"],
        ["identify", ""],
        ["identify", "a", "b"],
        ["identify", "a", "--output", "b"],
        ["pin"],
        ["pin", "a", "--output", "b", "--output", "b"],
        ["pin", "a", "--outp", "b"],
        ["identity", "a"],
    ],
)
def test_wrong_arguments(arguments: list[str], run: Run) -> None:
    """Both commands take one file; anything else is a wrong option."""
    result = run(*arguments)
    assert (result.code, result.out) == (2, b"")
    assert result.error
