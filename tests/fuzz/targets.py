"""All targets by name."""

from __future__ import annotations

from tests.fuzz import bpe, frames, gguf_header, token_json, token_worker, utf8_output
from tests.fuzz.target import Target

MODULES = (frames, token_worker, token_json, gguf_header, utf8_output, bpe)

TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in MODULES}
