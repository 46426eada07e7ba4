"""The real server in a thread of the test process, on a real socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from auth.keys import Key
from auth.origins import OriginRule
from engine.artifact import Progress
from server.backend import Backend
from server.engine_thread import Load
from server.exit_codes import ExitCode
from server.limits import Limits
from server.listener import bind
from server.service import Service, Settings
from tests.server.raw_http import KEY

ORIGIN = "https://app.example"


@dataclass
class Running:
    """A server that runs; `exit_code` is there once it has stopped."""

    service: Service
    thread: threading.Thread
    ready: threading.Event = field(default_factory=threading.Event)
    records: list[dict[str, Any]] = field(default_factory=list)
    exit_code: ExitCode | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self.service.port

    def stop(self, within: float = 20.0) -> ExitCode:
        """Ask it to stop and wait for the end."""
        self.service.request_stop()
        return self.wait(within)

    def wait(self, within: float = 20.0) -> ExitCode:
        """Wait for the end."""
        self.thread.join(within)
        assert not self.thread.is_alive(), "the server does not end"
        assert self.exit_code is not None
        return self.exit_code


@contextmanager
def running(
    backend: Backend, *, load: Load | None = None, wait_ready: bool = True, **limits: Any
) -> Iterator[Running]:
    """A server with `backend`; stopped at the end, in a hurry."""
    limits = {"drain_seconds": 0.0} | limits

    def default_load(_progress: Progress) -> Backend:
        return backend

    settings = Settings(
        host="127.0.0.1",
        key=Key(KEY),
        origins=OriginRule(frozenset({ORIGIN.encode()})),
        limits=Limits(**limits),
        model_id=lambda backend: backend.facts.name,
    )

    def announce(record: dict[str, Any]) -> None:
        server.records.append(record)
        server.ready.set()

    def run() -> None:
        server.exit_code = asyncio.run(service.run())

    service = Service(settings, bind("127.0.0.1", 0), load or default_load, announce)
    server = Running(service, threading.Thread(target=run))
    server.thread.start()
    try:
        if wait_ready:
            assert server.ready.wait(10)
        yield server
    finally:
        service.request_stop()
        server.thread.join(20)
        assert not server.thread.is_alive(), "the server does not end"
