from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from engine import errors
from engine.driver import main as driver
from engine.driver.exit_codes import EXIT_CODES, exit_code
from engine.gguf import parse_header
from engine.layout import prove_layout
from tests.engine.driver.commands import COMMAND, ROOT, Run, environment, execute, pinned
from tests.gguf_writer import GgufWriter
from tests.models import model_path

TRAINED = model_path("trained-qwen35-pq2_0-had")
RANDOM = model_path("tiny-qwen3-q8_0")
REQUEST = ["--tokens", "1", "--max-tokens", "200", "--checkpoint-bytes", "1000000000"]

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and terminals")


def faulty(folder: Path) -> Path:
    """A model whose last norm is NaN."""
    data = bytearray(RANDOM.read_bytes())
    norm = prove_layout(parse_header(data, len(data)), len(data), None)["output_norm.weight"]
    data[norm.start : norm.start + norm.nbytes] = np.full(norm.nbytes // 4, np.nan, "<f4").tobytes()
    path = folder / "faulty.gguf"
    path.write_bytes(data)
    return path


def wrong_hash(path: Path) -> list[str]:
    """A pin with the right length and another hash."""
    return [*pinned(path)[:5], "0" * 64]


EXITS: dict[str, tuple[int, Callable[[Path], list[str]]]] = {
    "success": (0, lambda _: [*pinned(RANDOM), *REQUEST[:3], "2", *REQUEST[4:]]),
    "wrong option": (2, lambda _: ["--nonsense"]),
    "no option": (2, lambda _: []),
    "missing manifest": (2, lambda folder: ["--manifest", str(folder / "none.toml"), *REQUEST]),
    "context": (2, lambda _: [*pinned(RANDOM), *REQUEST, "--context", "150"]),
    "budget": (3, lambda _: [*pinned(RANDOM), *REQUEST, "--memory-bytes", "1000"]),
    "missing file": (4, lambda folder: ["--model", str(folder / "none"), *pinned(RANDOM)[2:], *REQUEST]),
    "folder": (4, lambda folder: ["--model", str(folder), *pinned(RANDOM)[2:], *REQUEST]),
    "hash": (4, lambda _: [*wrong_hash(RANDOM), *REQUEST]),
    "length": (4, lambda _: [*pinned(RANDOM)[:3], "5", *pinned(RANDOM)[4:], *REQUEST]),
    "not GGUF": (5, lambda folder: [*pinned(written(folder, b"<html>")), *REQUEST]),
    "no graph": (5, lambda folder: [*pinned(written(folder, other())), *REQUEST]),
    "engine fault": (7, lambda folder: [*pinned(faulty(folder)), *REQUEST]),
}


def other() -> bytes:
    """A file of an architecture that there is no graph for."""
    return GgufWriter().add("general.architecture", "string", "gpt9").build()


def written(folder: Path, content: bytes) -> Path:
    """A file with some content."""
    path = folder / "file.gguf"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("code", "arguments"), EXITS.values(), ids=EXITS.keys())
def test_exit_codes(code: int, arguments: Callable[[Path], list[str]], tmp_path: Path) -> None:
    """The process ends with the table's code, and an error is one line on standard error alone."""
    result = execute(*arguments(tmp_path))
    assert result.code == code, result.err
    if code:
        assert result.out == b""
        assert result.error
    else:
        assert result.err == ""
        assert result.records[-1]["type"] == "completion"


# Draws from the whole vocabulary: with this seed, no stop comes for 1,500 tokens. Their records are more
# than a pipe holds, so the command waits for its reader, however fast it is.
LONG = [
    *("--tokens", "1", "--max-tokens", "1500", "--checkpoint-bytes", "1000000000", "--output", "text"),
    *("--sampling", "reference", "--seed", "2", "--temperature", "1000", "--top-k", "0", "--top-p", "1"),
]


@contextmanager
def streaming(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """A long generation that has given its first token, with its two streams."""
    command = [*COMMAND, *pinned(TRAINED), *LONG, *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["type"] == "token"
        yield process, process.stdout, process.stderr


def test_deadline() -> None:
    """A generation that takes longer than its time, its reader's included, fails without a record."""
    with streaming("--timeout-seconds", "1", "--kernel", "numpy") as (process, out, err):
        time.sleep(1.2)
        tokens, message = out.read(), err.read()
    assert process.returncode == 8
    assert b"deadline" in message
    assert b"completion" not in tokens


@posix
def test_interrupt_while_streaming() -> None:
    """Tokens come out while the generation runs; Ctrl-C ends it without a record or a traceback."""
    with streaming() as (process, out, err):
        process.send_signal(signal.SIGINT)
        tokens, message = out.read(), err.read()
    assert process.returncode == 130
    assert b"completion" not in tokens
    assert message == b"prism-inference: error: interrupted\n"


@posix
def test_closed_output() -> None:
    """A reader that goes away in the middle of an answer ends the command quietly, with its own code."""
    with streaming() as (process, out, err):
        out.close()
        message = err.read()
    assert process.returncode == 6
    assert message == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize("arguments", [["--capabilities"], ["identify", str(TRAINED)]])
def test_full_disk(arguments: list[str]) -> None:
    """Output that cannot be stored is an error of the command."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert done.returncode == 6
    assert done.stderr.startswith(b"prism-inference: error: the output cannot be written: No space")


def test_capabilities() -> None:
    """One JSON line with a line feed, nothing on standard error, from any folder."""
    result = execute("--capabilities", cwd=Path.home())
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(b"}\n")
    assert result.out.count(b"\n") == 1
    assert result.records[0]["kind"] == "prism-inference-capabilities"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--capabilities", "--mode", "generate"],
        ["--capabilities", "--capabilities"],
        ["--mode", "score", "--capabilities"],
        ["--capabilities=1"],
        ["replay", "--capabilities"],
    ],
)
def test_capabilities_stand_alone(arguments: list[str], run: Run) -> None:
    """No other option may stand beside it."""
    result = run(*arguments)
    assert (result.code, result.out) == (2, b"")


def test_help() -> None:
    """Help goes to standard output and is a success, for every command."""
    for command in ([], ["identify"], ["pin"]):
        result = execute(*command, "--help")
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith(b"usage: prism-inference")


def test_output_is_utf8_everywhere(tmp_path: Path) -> None:
    """Records are UTF-8 with LF line ends even where the system's encoding is another one."""
    env = {**environment(), "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    path = tmp_path / "größe \u2028.gguf"
    path.write_bytes(TRAINED.read_bytes())
    command = [*COMMAND, "identify", str(path)]
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert "größe".encode() in done.stdout
    assert b"\r" not in done.stdout


def test_mistakes_are_one_line(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """A mistake of the program itself is one line that names its kind, without details or a traceback."""

    def broken(_: object) -> None:
        raise KeyError("secret detail")

    monkeypatch.setitem(driver.COMMANDS, "identify", broken)
    result = run("identify", "x")
    assert (result.code, result.error) == (1, "internal error (KeyError); please report it")

    def greedy(_: object) -> None:
        raise MemoryError

    monkeypatch.setitem(driver.COMMANDS, "identify", greedy)
    assert run("identify", "x").code == 3


def test_line_ends_in_paths(run: Run, tmp_path: Path) -> None:
    """A path with line ends does not break the one-line rule."""
    assert run("identify", f"{tmp_path}/a\nb\r\nc").error.endswith("a b c: No such file or directory")


def every_error() -> list[type[errors.EngineError]]:
    """All classes of the engine's errors, but for those of workers and their clients, which run elsewhere."""
    found, queue = [], [errors.EngineError]
    while queue:
        kind = queue.pop()
        if not kind.__module__.startswith("engine.workers."):
            found.append(kind)
        queue += kind.__subclasses__()
    return found


def test_table_is_complete() -> None:
    """Every error of the engine has a code of its own kind; only the base class is unexpected."""
    for kind in every_error():
        error = kind(1, 2, 3) if kind is errors.ContextError else kind("x")
        assert (exit_code(error) == 1) == (kind is errors.EngineError), kind
    assert len({kind for kind, _ in EXIT_CODES}) == len(EXIT_CODES)


@posix
def test_progress_on_a_terminal() -> None:
    """On a terminal, bars for hashing and prefill are drawn and wiped; elsewhere there are none."""
    import pty

    controller, terminal = pty.openpty()
    command = [*COMMAND, *pinned(RANDOM), "--prompt", "x y z", *REQUEST[2:3], "2", *REQUEST[4:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, env=environment(), check=False)
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(controller, 4096)
        except OSError:  # the end, on Linux
            break
        if not part:
            break
        shown += part
    os.close(controller)
    assert done.returncode == 0
    assert b"verifying [" in shown
    assert b"prefill [" in shown
    assert b"100 %" in shown
    assert shown.endswith(b" \r")
    assert b"\n" not in shown


def test_runs_as_an_installed_command() -> None:
    """The console script of the package is this function."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert 'prism-inference = "engine.driver.main:main"' in text
    assert sys.modules["engine.driver.main"].main is driver.main
