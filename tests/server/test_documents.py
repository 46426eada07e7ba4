"""`docs/http.md` against the code: its tables are the code's tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from starlette.routing import Route

from auth.gate import PUBLIC
from server.chat_request import CHAT, MESSAGE
from server.completion_request import COMPLETION
from server.exit_codes import ExitCode
from server.limits import Limits
from server.token_request import DETOKENIZE, TOKENIZE
from tests.server.running import Running
from tests.server.scripted import ScriptedBackend

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text("utf-8")


def tables() -> list[tuple[list[str], list[list[str]]]]:
    """Every table of the document: its head, and its rows as cells."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", DOCUMENT, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append((rows[0], rows[2:]))
    return found


def with_head(first: str) -> list[list[list[str]]]:
    """The rows of all tables whose first column is called so, in order."""
    return [rows for head, rows in tables() if head[0] == first]


@pytest.mark.parametrize("number", range(5))
def test_the_field_tables_are_the_parsers(number: int) -> None:
    """Every field with its handling, none more and none less; refused ones with their neutral values."""
    table = (CHAT, MESSAGE, COMPLETION, TOKENIZE, DETOKENIZE)[number]
    rows = with_head("field")[number]
    code = dict.fromkeys(table.honoured, "honoured")
    code |= dict.fromkeys(table.ignored, "ignored") | dict.fromkeys(table.refused, "refused")
    assert {row[0].strip("`"): row[1] for row in rows} == code
    kinds = {str: "string", bool: "boolean", dict: "object"}
    for name, _, text in rows:
        field = name.strip("`")
        if field in table.ignored:
            assert text.split(";")[0] == kinds[table.ignored[field]]
        if field in table.refused:
            neutral = [value for value in table.refused[field] if not isinstance(value, float)]
            assert re.findall("`([^`]+)`", text) == [json.dumps(value) for value in neutral]


def test_the_routes_are_the_applications(shared: tuple[ScriptedBackend, Running]) -> None:
    """Every route with its method and whether it needs the key."""
    code = set()
    for route in shared[1].service._api.application().routes:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            key = "no" if (method, route.path) in PUBLIC else "yes"
            code.add((f"{method} `{route.path.replace(':path', '')}`", key))
    assert {(row[0], row[1]) for row in with_head("method and path")[0]} == code
    assert {path for _, path in PUBLIC} == {"/livez", "/readyz", "/health"}


def test_the_limits_are_the_options() -> None:
    """Every limit with its default, range and description."""
    documented = [tuple(row) for row in with_head("limit")[0]]
    code = [
        (f"`{name}`", str(getattr(Limits, name)), f"{bounds.low:.10g} to {bounds.high:.10g}", bounds.help)
        for name, bounds in Limits.bounds().items()
    ]
    assert documented == code


def test_the_exit_codes_are_all_there() -> None:
    """Every code has its row."""
    assert [int(row[0]) for row in with_head("exit code")[0]] == sorted(int(code) for code in ExitCode)


def test_every_error_code_of_the_server_is_documented() -> None:
    """The codes that the sources name stand in the table of statuses."""
    documented = {code for row in with_head("status")[0] for code in re.findall("`([a-z_]+)`", row[1])}
    root = Path(__file__).resolve().parents[2]
    named = set()
    for source in [*(root / "server").glob("*.py"), root / "auth" / "refusals.py"]:
        text = source.read_text("utf-8")
        named |= set(re.findall(r'code="([a-z_]+)"', text))
    assert named <= documented
    assert {"context_length_exceeded", "invalid_type", "deadline_exceeded", "poisoned"} <= documented
