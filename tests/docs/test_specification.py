"""docs/specification.md: every row of its table names a module and tests that are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from deploy.paths import ROOT

PAGE = ROOT / "docs" / "specification.md"
CELLS = re.compile(r"(?<!\\)\|")
MODULE = re.compile(r"\[([^]]+)\]\(\.\./([^)]+)\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")

# Rows of each section, counted by hand: a row that gets lost is noticed.
SECTIONS = {
    "Capabilities": 16,
    "Inputs and the order of checks": 32,
    "Text and special tokens": 20,
    "Generation, streaming and sampling": 30,
    "Samplers and stop policies": 14,
    "Tokenizing without a graph": 13,
    "Sessions for tokens and for text": 24,
    "The token worker": 35,
    "The token worker's client": 20,
    "Input readers and tokenizer interfaces": 28,
    "Swift worker, sessions and server": 14,
    "What the crate's other pages add": 62,
}


def rows_by_section() -> dict[str, list[list[str]]]:
    """The cells of every row below the head of each table, by the section's title."""
    sections: dict[str, list[list[str]]] = {}
    for part in re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title = part.splitlines()[0].partition(". ")[2]
        table = [line for line in part.splitlines() if line.startswith("|")]
        sections[title] = [[cell.strip() for cell in CELLS.split(line)[1:-1]] for line in table[2:]]
    return sections


ROWS = [row for rows in rows_by_section().values() for row in rows]


@cache
def functions_of(path: Path) -> frozenset[str]:
    """The names of a file's functions at its outermost level, where the runner finds tests."""
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_section_is_whole() -> None:
    """Sections and their rows are as many as were counted, and numbered without a gap."""
    sections = rows_by_section()
    assert {title: len(rows) for title, rows in sections.items()} == SECTIONS
    for number, rows in enumerate(sections.values(), 1):
        assert [row[0] for row in rows] == [f"{number}.{index}" for index in range(1, len(rows) + 1)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_names_what_is_there(row: list[str]) -> None:
    """Four cells with content; modules that exist; tests that are functions of the file that is named."""
    assert len(row) == 4
    assert all(row)
    _, requirement, modules, tests = row
    assert requirement.endswith(".")
    assert MODULE.sub("", modules).strip(" ,") == ""
    for shown, path in MODULE.findall(modules):
        assert shown == path
        assert (ROOT / path).is_file(), path
    assert TEST.sub("", tests).strip(" ,") == ""
    for file, name in TEST.findall(tests):
        assert name in functions_of(ROOT / file), f"{file}::{name}"


def test_no_requirement_is_listed_twice() -> None:
    """Every row says something of its own."""
    requirements = [row[1] for row in ROWS]
    assert sorted(set(requirements)) == sorted(requirements)
