"""When set-up installs, and when it has nothing to do; pip itself is replaced here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deploy import environment
from deploy.errors import SetupError
from deploy.paths import ROOT

SOURCES = (
    "pyproject.toml",
    *(f"engine/kernels/{name}" for name in ("_build.py", "_native.pyx", "native/a.c")),
)


class Commands:
    """Takes the place of `subprocess.run`: notes each command and answers with a code."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.python_runs = False
        self.install_code = 0
        self.seen: list[str] = []

    def __call__(self, command: list[Any], **_: Any) -> subprocess.CompletedProcess[str]:
        """One command; probes of the interpreter are not noted."""
        words = [str(word) for word in command]
        if words[1] == "-I":
            return subprocess.CompletedProcess(words, 0 if self.python_runs else 1, "3.11.7\n", "")
        if "venv" in words:
            self.python_runs = True
            environment.STAMP.parent.mkdir()
        self.seen.append("venv" if "venv" in words else words[-1].removeprefix(str(self.root)))
        return subprocess.CompletedProcess(words, self.install_code, "", "")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Commands:
    """A project without an environment, and a record of what is run for it."""
    commands = Commands(tmp_path)
    (tmp_path / "engine" / "kernels" / "native").mkdir(parents=True)
    for name in SOURCES:
        (tmp_path / name).write_text("old", "utf-8")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setattr(environment, "STAMP", tmp_path / ".venv" / "installed.json")
    monkeypatch.setattr(subprocess, "run", commands)
    return commands


def test_second_call_does_nothing(commands: Commands) -> None:
    """An environment is made and filled once."""
    environment.ensure_environment(["test"])
    assert commands.seen == ["venv", "[test]"]
    environment.ensure_environment(["test"])
    environment.ensure_environment()
    assert commands.seen == ["venv", "[test]"]


def test_extras_add_up(commands: Commands) -> None:
    """A command that needs more installs what the earlier ones needed too."""
    environment.ensure_environment()
    environment.ensure_environment(["test"])
    environment.ensure_environment(["lint", "test"])
    assert commands.seen == ["venv", "", "[test]", "[lint,test]"]


@pytest.mark.parametrize("name", SOURCES)
def test_changed_sources(commands: Commands, name: str) -> None:
    """A change of the project file or the native kernels leads to a new installation of the same extras."""
    environment.ensure_environment(["test"])
    (commands.root / name).write_text("new", "utf-8")
    environment.ensure_environment()
    assert commands.seen == ["venv", "[test]", "[test]"]


def test_damaged_record(commands: Commands) -> None:
    """A record that cannot be read counts as none."""
    environment.ensure_environment()
    environment.STAMP.write_text("{", "utf-8")
    environment.ensure_environment()
    assert commands.seen == ["venv", "", ""]


def test_failed_installation_is_tried_again(commands: Commands) -> None:
    """Without success there is no record, so the next call installs again."""
    commands.install_code, commands.python_runs = 1, True
    environment.STAMP.parent.mkdir()
    for _ in range(2):
        with pytest.raises(SetupError, match="pip could not install"):
            environment.ensure_environment()
    assert commands.seen == ["", ""]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m deploy` with arguments that must not get as far as the environment."""
    command = [sys.executable, "-m", "deploy", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [(), ("bake",), ("demo", "--twice"), ("lint", "engine")])
def test_wrong_command_lines(arguments: tuple[str, ...]) -> None:
    """A wrong command is refused with code 2 before anything is made."""
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("usage: python -m deploy")
