from __future__ import annotations

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from engine.chat import Message
from engine.workers import swift_worker_main
from engine.workers.swift_client import COMPLETION_ERRORS
from engine.workers.swift_protocol import READY_FIELDS
from tests.engine.swift.models import STORIES, manifest_text
from tests.engine.workers.swift_processes import COMMAND, ROOT, Worker
from tests.models import pin_of

PAGE = (ROOT / "docs" / "workers.md").read_text("utf-8").partition("## The Swift worker")[2]
EXAMPLES = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.S)
QUESTION = [Message("user", "What is the capital of France?")]


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """The manifest of the small model."""
    path = tmp_path / "stories.toml"
    path.write_text(manifest_text(STORIES, "chatml-think"), "utf-8")
    return path


def test_the_shown_conversation(manifest: Path) -> None:
    """The requests on the page get the records on the page, but for the name of the kernels."""
    shown = re.search(r"```text\n(\{.*?)```", PAGE, re.S)
    assert shown is not None
    lines = shown[1].splitlines()
    with Worker("--manifest", manifest, "--seed", 1, "--row-workers", 1) as worker:
        for line in lines:
            if line.startswith("> "):
                worker.send(line[2:].encode() + b"\n")
            else:
                found = worker.output.readline().decode("utf-8").rstrip("\n")
                assert re.sub('"kernels":"[^"]+"', '"kernels":"numpy"', found) == line
    assert json.loads(lines[0]).keys() == READY_FIELDS.keys()


def test_everything_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The section names every option, every field of the ready record and every word of an error."""
    with pytest.raises(SystemExit):
        swift_worker_main.main(["--help"])
    for flag in set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out)) - {"--help"}:
        assert f"`{flag}" in PAGE, flag
    for word in (*READY_FIELDS, *COMPLETION_ERRORS, "invalid_request"):
        assert f"`{word}`" in PAGE, word


def test_the_client_example(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python example of the client runs as it stands and prints what the page shows."""
    monkeypatch.chdir(ROOT)
    code, output = EXAMPLES[0]
    command = [*COMMAND, "--manifest", str(manifest), "--seed", "1", "--row-workers", "1"]
    assert command[0] == sys.executable
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "docs/workers.md", "exec"), {"command": command})
    assert printed.getvalue() == output


def test_the_session_example() -> None:
    """The Python example of the session runs as it stands, and answers as the worker does."""
    code, _ = EXAMPLES[1]
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "docs/workers.md", "exec"), {"pin": pin_of(STORIES), "question": QUESTION})
    assert printed.getvalue() == "The capital of France is Paris.\n"
