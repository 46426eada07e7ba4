"""The real command with a scripted backend instead of a model, to be run as a process of its own."""

from __future__ import annotations

import sys
from unittest.mock import patch

from engine.artifact import Progress
from server import main
from server.backend import Backend
from server.model_backend import ModelOptions
from tests.server.scripted import Script, ScriptedBackend


def load_scripted(_options: ModelOptions, _progress: Progress) -> Backend:
    """An answer that does not end, after a print that must not reach standard output."""
    print("a library that prints")
    return ScriptedBackend([Script([b"x"], token_seconds=0.02, endless=True)])


if __name__ == "__main__":
    with patch.object(main, "load_backend", load_scripted):
        sys.exit(main.main())
