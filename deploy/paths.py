"""Where set-up keeps its things, all inside the project's folder and none of it under version control."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
DEMO = ROOT / ".demo"
MODEL_MANIFEST = ROOT / "deploy" / "demo-model.toml"
MODEL_PACKAGE = ROOT / "deploy" / "demo-model-package.txt"
VOCABULARY_MANIFEST = ROOT / "deploy" / "qwen35-vocabulary.toml"
VOCABULARY_PACKAGE = ROOT / "deploy" / "qwen35-vocabulary-package.txt"
