"""Runs `prism-inference` for the tests: as a process of its own, or inside the test for speed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models import pin_of

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "engine.driver.main"]

Run = Callable[..., "Result"]


@dataclass(frozen=True)
class Result:
    """What came of a command."""

    code: int
    out: bytes
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The JSON lines of standard output."""
        assert self.out.endswith(b"\n")
        return [json.loads(line) for line in self.out.decode("utf-8").split("\n")[:-1]]

    @property
    def error(self) -> str:
        """The message of the single error line."""
        start = "prism-inference: error: "
        assert self.err.startswith(start), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix(start).rstrip("\n")


def environment() -> dict[str, str]:
    """The environment of a child that finds the source tree from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def execute(*arguments: str | os.PathLike[str], stdin: bytes = b"", cwd: Path | None = None) -> Result:
    """Runs the command as a process."""
    done = subprocess.run(
        [*COMMAND, *arguments], input=stdin, capture_output=True, cwd=cwd, env=environment(), check=False
    )
    return Result(done.returncode, done.stdout, done.stderr.decode("utf-8"))


def pinned(path: Path) -> list[str]:
    """The three options that pin a file as it is now."""
    pin = pin_of(path)
    return ["--model", str(pin.path), "--bytes", str(pin.nbytes), "--sha256", pin.sha256]
