from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.peer import peer_beside
from benchmarks.subject import Subject, add_subject_options, open_subject

LLAMA = """
import time

def llama_print_system_info():
    return b"made up"

class Llama:
    def __init__(self, path, n_ctx, n_threads, **options):
        assert path.endswith(".gguf") and (n_ctx, n_threads) == (64, 3)
        print("a loader that talks")

    def reset(self):
        self.tokens = 0

    def eval(self, tokens):
        if self.tokens + len(tokens) > 64:
            raise ValueError("context is full")
        self.tokens += len(tokens)
        time.sleep(0.02 * len(tokens))
"""
XLLAMA = """
from types import SimpleNamespace

def get_system_info():
    return "made up too"

class CommonParams:
    def __init__(self):
        self.model = SimpleNamespace()
        self.cpuparams = SimpleNamespace()
        self.cpuparams_batch = SimpleNamespace()

class Server:
    def __init__(self, parameters):
        assert (parameters.n_ctx, parameters.cpuparams.n_threads) == (64, 3)

    def handle_completions(self, request):
        assert request["cache_prompt"] is False and request["ignore_eos"] is True
        count, predicted = len(request["prompt"]), request["n_predict"]
        return {"timings": {"prompt_n": count, "prompt_ms": count * 50.0, "predicted_n": predicted,
                            "predicted_ms": (predicted - 1) * 100.0}}
"""


def subject_of(kind: str, folder: Path) -> Subject:
    """A tiny model."""
    parser = argparse.ArgumentParser()
    add_subject_options(parser)
    arguments = ["--model", "tiny-qwen3", "--type", kind, "--folder", str(folder)]
    return open_subject(parser.parse_args(arguments))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A made-up package of that name, installed for the interpreters that the test starts."""
    name, source = request.param
    (tmp_path / f"{name}.py").write_text(source)
    distribution = "llama_cpp_python" if name == "llama_cpp" else name
    facts = tmp_path / f"{distribution}-1.2.3.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2.3\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize("package", [("llama_cpp", LLAMA)], indirect=True)
@pytest.mark.usefixtures("package")
def test_llama_cpp_python(folder: Path) -> None:
    """Prompts and single tokens are timed apart; what the library prints does not disturb."""
    with peer_beside(Path(sys.executable), subject_of("Q1_0", folder), 3, 64) as peer:
        assert peer is not None
        assert peer.facts == {"name": "llama-cpp-python", "version": "1.2.3", "system": "made up"}
        assert 10 < peer.prefill([1] * 10) <= 50
        assert 10 < peer.decode([1, 2], 5) <= 50
        with pytest.raises(BenchmarkError, match="context is full"):
            peer.prefill([1] * 65)


@pytest.mark.parametrize("package", [("xllamacpp", XLLAMA)], indirect=True)
@pytest.mark.usefixtures("package")
def test_xllamacpp(folder: Path) -> None:
    """The server's own times count, and one token more than the steps is asked for."""
    with peer_beside(Path(sys.executable), subject_of("Q1_0", folder), 3, 64) as peer:
        assert peer is not None
        assert peer.facts == {"name": "xllamacpp", "version": "1.2.3", "system": "made up too"}
        assert peer.prefill([1] * 10) == pytest.approx(20)
        assert peer.decode([1, 2], 5) == pytest.approx(10)


def test_no_package(folder: Path) -> None:
    """An interpreter without either package is refused with a sentence."""
    with (
        pytest.raises(BenchmarkError, match="neither llama_cpp nor xllamacpp"),
        peer_beside(Path(sys.executable), subject_of("Q1_0", folder), 3, 64),
    ):
        pass


def test_unknown_type(folder: Path) -> None:
    """A type that the peer does not read is refused before it is started."""
    with (
        pytest.raises(BenchmarkError, match="does not read PQ2_0"),
        peer_beside(Path("absent"), subject_of("PQ2_0", folder), 3, 64),
    ):
        pass


def test_not_wanted(folder: Path) -> None:
    """Without an interpreter there is no peer."""
    with peer_beside(None, subject_of("Q1_0", folder), 3, 64) as peer:
        assert peer is None
