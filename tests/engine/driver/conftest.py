from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from engine.driver.main import main
from tests.engine.driver.commands import Result


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command inside the test: `run(*arguments, stdin=b"")`."""

    def command(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Result(code, out, err.decode("utf-8"))

    return command
