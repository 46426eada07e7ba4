from __future__ import annotations

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from engine.driver.exit_codes import ExitCode
from engine.tokenization import TextTokenizationPolicy, TokenBudget, TokenizationSession
from engine.workers import token_worker_main
from engine.workers.token_worker import answer
from tests.engine.workers.conversations import ROOT, arguments_for, ready_line, started
from tests.models import model_path, pin_of

PAGE = (ROOT / "docs" / "workers.md").read_text("utf-8")
OURS = PAGE.partition("## The Swift worker")[0]
TRAINED = pin_of(model_path("trained-qwen35-pq2_0-had"))
SETTINGS: dict[str, str | None] = {
    "memory_bytes": "300000000",
    "context": "4096",
    "reserved_output_tokens": "512",
    "max_frame_bytes": "65536",
}


def test_the_shown_conversation(tmp_path: Path) -> None:
    """The command's input gives the records that the page shows, byte for byte."""
    sent = re.search(r"printf '(.*?)\\n' \|", OURS)
    shown = re.search(r"```json\n(.*?)```", OURS, re.S)
    assert sent is not None
    assert shown is not None
    with started(*arguments_for(TRAINED, **SETTINGS), folder=tmp_path) as worker:
        output, _ = worker.communicate(sent[1].encode() + b"\n")
    assert output.decode("utf-8") == shown[1]


def test_the_shown_requests() -> None:
    """Each request in the table gets the answer beside it."""
    policy = TextTokenizationPolicy("literal", "none", TokenBudget(4096, 512))
    session = TokenizationSession.load(TRAINED, 1_000_000, policy)
    rows = re.findall(r"^\| `(\{.*?\})` \| `(\{.*?\})` \|$", OURS, re.M)
    assert len(rows) == 6
    for sent, shown in rows:
        assert json.loads(json.dumps(answer(session, sent.encode()))) == json.loads(shown)


def test_everything_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The page names every option, every field of the ready record and every exit code that there can be."""
    with pytest.raises(SystemExit):
        token_worker_main.main(["--help"])
    for flag in set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out)) - {"--help"}:
        assert flag in OURS, flag
    for field in ready_line(TRAINED):
        assert f"`{field}`" in OURS, field
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", OURS, re.M)}
    assert codes == {0, 1, 2, 3, 4, 5, 6, 130}
    assert codes <= set(ExitCode)


def test_the_client_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The Python example runs as it stands and prints what the page shows."""
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", OURS, re.S)
    assert example is not None
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", token_worker_main.__name__, *arguments_for(TRAINED, **SETTINGS)]
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(example[1], "docs/workers.md", "exec"), {"command": command})
    assert printed.getvalue() == example[2]
