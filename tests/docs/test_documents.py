"""The documents against the project: links lead somewhere, and what they tell to type exists."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from deploy.__main__ import COMMANDS
from deploy.paths import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_SHELLS = {"sh", "bash", "console", "powershell"}


def text_of(document: Path) -> str:
    """The document's text."""
    return document.read_text("utf-8")


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text_of(document)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shell_lines(document: Path) -> list[str]:
    """Every line of the document's shell blocks, continued lines joined, prompts taken off."""
    blocks = (body for language, body in _FENCE.findall(text_of(document)) if language in _SHELLS)
    lines = "\n".join(blocks).replace("\\\n", " ").replace("`\n", " ").splitlines()
    return [line.removeprefix("$ ").removeprefix("> ") for line in lines]


@cache
def options_of(program: str) -> str:
    """The help text of one of our commands."""
    module = SCRIPTS[program].partition(":")[0]
    command = [sys.executable, "-m", module, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links(document: Path) -> None:
    """Every relative link leads to a file of the project, and to a heading where it names one."""
    for link in _LINK.findall(_FENCE.sub("", text_of(document))):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the project"
        if anchor:
            assert anchor in anchors(target), f"{link} names no heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands(document: Path) -> None:
    """Every make target, set-up command and option that a document tells to type exists."""
    targets = re.findall(r"^([a-z ]+):$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for line in shell_lines(document):
        if line.startswith("make "):
            assert line.split()[1] in " ".join(targets).split(), line
        if set_up := re.search(r"-m deploy (\w+)", line):
            assert f"  {set_up[1]} " in COMMANDS, line
        for program in SCRIPTS:
            if re.match(rf"(\S*[/\\])?{program}(\.exe)? ", line):
                for option in re.findall(r"(?<= )--[a-z0-9-]+", line.partition("|")[0]):
                    assert re.search(rf"{option}\b(?!-)", options_of(program)), f"{option} in: {line}"


def test_index_is_complete() -> None:
    """docs/README.md links every document of its folder."""
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(text_of(index))}
    assert {path for path in (ROOT / "docs").rglob("*.md") if path != index} <= linked


def test_the_two_commands_come_first() -> None:
    """The first shell block of the README is the two commands that set everything up."""
    first = next(
        body for language, body in _FENCE.findall(text_of(ROOT / "README.md")) if language in _SHELLS
    )
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]
