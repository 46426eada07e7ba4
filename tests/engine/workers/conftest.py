from __future__ import annotations

import pytest

from engine.artifact import Pin
from tests.models import pin_of
from tests.vocabularies import small


@pytest.fixture(scope="package")
def pin(tmp_path_factory: pytest.TempPathFactory) -> Pin:
    """A small vocabulary in a file, with its pin."""
    return pin_of(small().write(tmp_path_factory.mktemp("model") / "vocabulary.gguf"))
