"""The command as a process of its own: ready record, exit codes, signals, and where the key is not."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from server.exit_codes import ExitCode
from tests.server.raw_http import KEY, Connection, call, parse_events, post

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "models" / "trained-qwen35-pq2_0-had.gguf"
PROMPT = "sentinel-prompt-text"


def pin(**changed: str) -> list[str]:
    """The options that name the small model."""
    data = MODEL.read_bytes()
    options = {"model": str(MODEL), "bytes": str(len(data)), "sha256": hashlib.sha256(data).hexdigest()}
    return [part for name, value in (options | changed).items() for part in (f"--{name}", value)]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A private file with the key."""
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    return path


class Process:
    """A running command; `output` and `errors` are complete once it has ended."""

    def __init__(self, *arguments: str, module: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.first = b""
        self.output = b""
        self.errors = b""

    def ready(self) -> dict[str, Any]:
        """Wait for the ready record."""
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline()
        record: dict[str, Any] = json.loads(self.first)
        return record

    def ask_to_stop(self) -> None:
        """What a service manager does: SIGTERM, or Ctrl-Break on Windows."""
        self.process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM))

    def wait(self, within: float = 30.0) -> int:
        """Wait for the end; the exit code."""
        self.output, self.errors = self.process.communicate(timeout=within)
        self.output = self.first + self.output
        return self.process.returncode


@contextmanager
def started(*arguments: str, module: str = "server.main", **environment: str) -> Iterator[Process]:
    """A process that does not outlive the test."""
    process = Process(*arguments, module=module, **environment)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.communicate()


def test_from_start_to_stop(key_file: Path) -> None:
    """One ready record; answers with the key alone; a signal ends it clean; the key was never written."""
    arguments = [*pin(), "--context", "512", "--token-file", str(key_file), "--port", "0"]
    with started(*arguments, "--chat-template", "qwen3.5") as process:
        record = process.ready()
        port = record["port"]
        assert record["type"] == "ready"
        assert record["pid"] == process.process.pid
        assert (record["host"], record["context"]) == ("127.0.0.1", 512)
        assert call(port, "GET", "/readyz", key=None).status == 200
        assert call(port, "GET", "/v1/models", key=None).status == 401
        seen = b"".join(response.body for response in exercise(port))
        process.ask_to_stop()
        assert process.wait() == ExitCode.CLEAN
    assert process.output.count(b"\n") == 1
    assert process.output.isascii()
    for line in process.errors.splitlines():
        assert "event" in json.loads(line)
    for text in (process.output, process.errors, seen):
        assert KEY.encode() not in text
        assert b"Traceback" not in text
    assert PROMPT.encode() not in process.output + process.errors


def exercise(port: int) -> list[Any]:
    """Answers of every route and of many mistakes, with the key and a prompt that must not be repeated."""
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4}
    answers = [
        call(port, method, path)
        for method in ("GET", "POST", "DELETE")
        for path in ("/livez", "/v1/models", "/v1/capabilities", "/v1/tokenize", "/unknown", f"/{PROMPT}")
    ]
    bodies = [chat, chat | {"stream": True}, {"prompt": PROMPT}, {"text": 1}, [PROMPT], {"prompt": [1 << 40]}]
    answers += [
        post(port, path, body)
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/tokenize", "/v1/detokenize")
        for body in bodies
    ]
    answers.append(call(port, "GET", "/v1/models", host="evil"))
    answers.append(call(port, "GET", f"/v1/models?key={KEY}", key=f"{KEY}wrong"))
    with Connection(port) as connection:
        connection.send(f"nonsense {KEY}\r\n\r\n".encode())
        answers.append(connection.read_response())
    return answers


@pytest.mark.skipif(os.name != "posix", reason="/proc and POSIX signals")
def test_the_key_is_in_no_place_that_others_can_read(key_file: Path) -> None:
    """Neither in the arguments nor in the environment of the process."""
    with started(*pin(), "--context", "64", "--token-file", str(key_file)) as process:
        process.ready()
        folder = Path("/proc") / str(process.process.pid)
        if folder.exists():
            for name in ("cmdline", "environ"):
                assert KEY.encode() not in (folder / name).read_bytes()
        process.process.send_signal(signal.SIGINT)
        assert process.wait() == ExitCode.CLEAN


def test_the_key_may_come_through_standard_input() -> None:
    """As its first line; the end of the stream means nothing."""
    with started(*pin(), "--context", "64", "--token-stdin") as process:
        assert process.process.stdin is not None
        process.process.stdin.write(KEY.encode() + b"\n")
        process.process.stdin.close()
        process.process.stdin = None
        port = process.ready()["port"]
        assert call(port, "GET", "/v1/models").status == 200
        process.ask_to_stop()
        assert process.wait() == ExitCode.CLEAN


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"sha256": "ab" * 32}, ExitCode.IDENTITY, b"hash_mismatch"),
        ({"bytes": "919135"}, ExitCode.IDENTITY, b"length_mismatch"),
        ({"model": str(MODEL) + ".missing"}, ExitCode.IDENTITY, b"artifact_unreadable"),
    ],
)
def test_another_file_than_the_pinned_one_ends_it(
    key_file: Path, changed: dict[str, str], code: ExitCode, words: bytes
) -> None:
    """With the code for identity, one line, and no ready record."""
    with started(*pin(**changed), "--token-file", str(key_file)) as process:
        assert process.wait() == code
    assert process.output == b""
    assert process.errors.count(b"\n") == 1
    assert words in process.errors


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--context", "1000000"], ExitCode.USAGE),
        (["--chat-template", "unheard-of"], ExitCode.USAGE),
        (["--memory-bytes", "1000"], ExitCode.BUDGET),
        (["--state-bytes", "1000"], ExitCode.BUDGET),
        (["--host", "0.0.0.0"], ExitCode.USAGE),
        (["--port", "1", "--port", "2"], ExitCode.USAGE),
        (["--unknown"], ExitCode.USAGE),
    ],
)
def test_what_cannot_work_ends_it(key_file: Path, arguments: list[str], code: ExitCode) -> None:
    """With a code of its own, one line, and no ready record."""
    with started(*pin(), "--token-file", str(key_file), *arguments) as process:
        assert process.wait() == code
    assert process.output == b""
    assert process.errors.count(b"\n") == 1
    assert b"Traceback" not in process.errors


def test_no_key_no_server(tmp_path: Path) -> None:
    """A missing file, an empty one, and one that others may read."""
    empty, public = tmp_path / "empty", tmp_path / "public"
    empty.touch(0o600)
    public.write_text(KEY)
    public.chmod(0o644)
    for path in (tmp_path / "missing", empty, *([public] if os.name == "posix" else [])):
        with started(*pin(), "--token-file", str(path)) as process:
            assert process.wait() == ExitCode.KEY
        assert process.output == b""
        assert process.errors.count(b"\n") == 1
        assert KEY.encode() not in process.errors


def test_a_taken_port_ends_it(key_file: Path) -> None:
    """No other port is taken instead."""
    with started(*pin(), "--context", "64", "--token-file", str(key_file)) as first:
        port = str(first.ready()["port"])
        with started(*pin(), "--token-file", str(key_file), "--port", port) as second:
            assert second.wait() == ExitCode.LISTEN
        assert second.output == b""
        assert b"another program listens there" in second.errors


def test_a_signal_ends_open_streams_honestly(key_file: Path) -> None:
    """An error event after the drain time, the code for a cut answer, and no traceback."""
    arguments = [*pin(), "--token-file", str(key_file), "--drain-seconds", "0.3"]
    with (
        started(*arguments, module="tests.server.scripted_process") as process,
        Connection(process.ready()["port"]) as stream,
    ):
        stream.post("/v1/completions", {"prompt": "x", "max_tokens": 4000, "stream": True})
        time.sleep(0.3)
        begin = time.monotonic()
        process.ask_to_stop()
        response = stream.read_response()
        assert process.wait() == ExitCode.DEADLINE
        assert time.monotonic() - begin < 5
    assert not response.complete
    events = parse_events(response.body)
    assert len(events.objects) > 5
    assert events.objects[-1]["error"]["code"] == "draining"
    assert "[DONE]" not in events.data
    assert b"Traceback" not in process.errors
    assert process.output.count(b"\n") == 1
    assert b"a library that prints" in process.errors


def test_a_second_signal_does_not_wait_for_the_drain(key_file: Path) -> None:
    """Two of them end a process that would wait for a minute."""
    arguments = [*pin(), "--token-file", str(key_file), "--drain-seconds", "60"]
    with (
        started(*arguments, module="tests.server.scripted_process") as process,
        Connection(process.ready()["port"]) as connection,
    ):
        connection.post("/v1/completions", {"prompt": "x", "max_tokens": 4000})
        for _ in range(2):
            time.sleep(0.3)
            process.ask_to_stop()
        assert connection.read_response().error()["code"] == "draining"
        assert process.wait(10) == ExitCode.DEADLINE


def test_odd_encodings_of_the_system_do_not_matter(key_file: Path, tmp_path: Path) -> None:
    """A model whose path the terminal cannot show is refused in one line all the same."""
    missing = str(tmp_path / "modèle-😀.gguf")
    arguments = [*pin(model=missing), "--token-file", str(key_file)]
    with started(*arguments, PYTHONIOENCODING="cp1252:strict") as process:
        assert process.wait() == ExitCode.IDENTITY
    assert process.errors.count(b"\n") == 1


def test_help_is_printed() -> None:
    """On standard output, with every limit and every exit code."""
    with started("--help") as process:
        assert process.wait() == 0
    for word in (b"--token-file", b"--queue", b"--send-stall-seconds", b"exit codes"):
        assert word in process.output


@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell closes the streams")
@pytest.mark.parametrize(
    ("key", "closing", "code"),
    [("--token-stdin", "<&-", ExitCode.KEY), ("--token-file=KEY", ">&-", ExitCode.OUTPUT)],
)
def test_closed_streams_are_refused(key_file: Path, key: str, closing: str, code: ExitCode) -> None:
    """One line on standard error; no other file is mistaken for the stream."""
    command = [sys.executable, "-m", "server.main", *pin(), key.replace("KEY", str(key_file))]
    line = f"{' '.join(command)} {closing}"
    ended = subprocess.run(["/bin/sh", "-c", line], cwd=ROOT, capture_output=True, timeout=30, check=False)
    assert ended.returncode == code
    assert ended.stderr.count(b"\n") == 1
    assert b"closed" in ended.stderr
