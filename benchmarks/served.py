"""The real server as a process with a key of its own, and streamed answers with the time of every piece.

Only what a client sees is measured. The server ends with this process, however that ends.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auth.key_file import write_key_file
from auth.keys import Key
from benchmarks.errors import BenchmarkError
from benchmarks.subject import EngineOptions, Subject
from engine.kernels import KERNEL_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
SILENCE_SECONDS = 600
STOP_SECONDS = 30


@dataclass(frozen=True)
class Answer:
    """A streamed answer: its text, when its pieces came (seconds after the request), and its token counts."""

    text: str
    times: tuple[float, ...]
    seconds: float  # until its end
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def first_seconds(self) -> float:
        """Seconds until the first piece; an answer without text came at its end."""
        return self.times[0] if self.times else self.seconds

    @property
    def gaps(self) -> list[float]:
        """Seconds between one piece and the next."""
        return [later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False)]


@dataclass(frozen=True)
class Served:
    """A running server; it became ready `ready_seconds` after its start."""

    port: int
    process: int
    ready_seconds: float
    key: Key

    def ask(self, messages: list[dict[str, str]], max_tokens: int) -> Answer:
        """The streamed answer of a chat completion; raises BenchmarkError if it is not whole."""
        body = {
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"Authorization": f"Bearer {self.key.reveal()}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SILENCE_SECONDS)
        pieces, times = [], []
        usage: dict[str, Any] = {}
        with closing(connection):
            started = time.perf_counter()
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            for event in _events(connection.getresponse()):
                usage = event.get("usage") or usage
                for choice in event["choices"]:
                    delta = choice["delta"]
                    if text := delta.get("content") or delta.get("reasoning_content"):
                        pieces.append(text)
                        times.append(time.perf_counter() - started)
            seconds = time.perf_counter() - started
        return Answer(
            "".join(pieces),
            tuple(times),
            seconds,
            usage["prompt_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
            usage["completion_tokens"],
        )


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    if response.status != 200:
        raise BenchmarkError(f"the server answered {response.status}: {response.read().decode()}")
    for line in response:
        if not line.startswith(b"data: "):
            continue
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            return
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise BenchmarkError(f"the answer broke off: {event['error']['message']}")
        yield event
    raise BenchmarkError("the answer broke off without an end mark")


@contextmanager
def running_server(subject: Subject, engine: EngineOptions, context: int | None) -> Iterator[Served]:
    """A server with the subject's model; afterwards it has stopped."""
    with tempfile.TemporaryDirectory() as folder:
        key, key_file, log_file = Key.generate(), Path(folder) / "key", Path(folder) / "log"
        write_key_file(key_file, key)
        command = _command(subject, engine, context, key_file)
        started = time.perf_counter()
        with (
            log_file.open("wb") as log,
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, KERNEL_VARIABLE: engine.kernel},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if not line:
                    last = log_file.read_text("utf-8", errors="replace").splitlines()[-5:]
                    raise BenchmarkError("\n".join(["the server ended; its last lines:", *last]))
                ready_seconds = time.perf_counter() - started
                yield Served(json.loads(line)["port"], process.pid, ready_seconds, key)
            finally:
                _stop(process)


def _command(subject: Subject, engine: EngineOptions, context: int | None, key_file: Path) -> list[str]:
    pin, template = subject.manifest.pin, subject.manifest.chat_template
    command = [sys.executable, "-m", "deploy.owned_server", "--token-file", str(key_file)]
    command += ["--model", str(pin.path), "--bytes", str(pin.nbytes), "--sha256", pin.sha256]
    command += ["--threads", str(engine.threads), "--activation-bits", str(engine.bits)]
    command += ["--context", str(context)] if context is not None else []
    command += ["--chat-template", template] if template is not None else []
    return command


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server's input, which asks it to stop, and insist if it takes too long."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
