from __future__ import annotations

import os
from pathlib import Path

import pytest

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT = Path(__file__).resolve().parents[2] / ".demo" / "models" / NAME
VARIABLE = "PRISM_SMOLLM2"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real model that set-up fetches; PRISM_SMOLLM2 may name the file, or a folder that holds it."""
    path = Path(os.environ.get(VARIABLE) or DEFAULT).absolute()
    if path.is_dir():
        path /= NAME
    if not path.is_file():
        pytest.fail(
            f"{NAME} is missing: `make model` fetches it to .demo/models, or set {VARIABLE} to where it is"
        )
    return path
