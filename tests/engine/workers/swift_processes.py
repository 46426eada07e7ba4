"""Real `bonsai-swift-worker` processes for tests, behind real pipes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from engine.chat import Message
from engine.workers.swift_client import ExpectedSwiftWorker, SwiftClient

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "engine.workers.swift_worker_main"]
SECONDS = 60  # after which a test fails instead of waiting on


class Worker:
    """A process that the test talks to by hand, or through a client; killed at the end if it still runs."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout
        self.ready: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        self.output.close()
        with suppress(OSError):  # what was not sent cannot be sent any more
            self.input.close()

    def send(self, *requests: bytes | dict[str, Any]) -> None:
        """Requests as JSON lines, or bytes as they are, in one write."""
        lines = (part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n" for part in requests)
        self.input.write(b"".join(lines))
        self.input.flush()

    def record(self) -> dict[str, Any]:
        """The next record."""
        line = self.output.readline()
        assert line.endswith(b"\n")
        record: dict[str, Any] = json.loads(line)
        return record

    def answer(self) -> list[dict[str, Any]]:
        """All records up to one that ends a request."""
        records = [self.record()]
        while records[-1]["type"] == "delta":
            records.append(self.record())
        return records

    def last_record(self) -> dict[str, Any]:
        """Read to the end of the output; its last record."""
        record: dict[str, Any] = json.loads(self.output.read().splitlines()[-1])
        return record

    def exit_code(self) -> int:
        """Wait for the end."""
        return self.process.wait(SECONDS)

    def client(self, expected: ExpectedSwiftWorker) -> SwiftClient:
        """A client on the worker's pipes, before anything else was read."""
        return SwiftClient.connect(self.output, self.input, expected)


def conversation(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    """Fields of a request, written independently of the client."""
    plain = [{"role": message.role, "content": message.content} for message in messages]
    return {"messages": plain, "max_tokens": max_tokens}


def count(request_id: int, messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:
    """A request to count."""
    return {"op": "count", "id": request_id, **conversation(messages, max_tokens)}


def complete(
    request_id: int, messages: Sequence[Message], max_tokens: int, seconds: int = 60
) -> dict[str, Any]:
    """A request to answer."""
    fields = conversation(messages, max_tokens)
    return {"op": "complete", "id": request_id, **fields, "timeout_seconds": seconds}


def text_of(records: Sequence[dict[str, Any]]) -> str:
    """The joined text of the deltas."""
    return "".join(record["text"] for record in records if record["type"] == "delta")
