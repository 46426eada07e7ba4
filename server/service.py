"""One server from listening socket to exit code: uvicorn, the gate, the engine's thread, and the way down.

The listener answers while the model loads. On a stop request new work is refused, what waits is told, the
running answer gets its time and is then cut off with an error event; only then does uvicorn close.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from auth.gate import Gate
from auth.hosts import HostRule
from auth.keys import Key
from auth.origins import OriginRule
from auth.refusals import Refusal
from engine.errors import EngineError
from server import event_stream
from server.app import Api
from server.backend import Backend
from server.engine_thread import EngineThread, Load
from server.exit_codes import ExitCode, for_load_error
from server.limits import Limits
from server.logs import log_event, log_fault
from server.protocol import bounded_protocol
from server.records import Announce, ready_record

_CUT_SECONDS = 3.0  # for a cancelled job to end, and then for streams to send their last event
_PREPARING_THREADS = 2
# How long a thread that computes in Python may keep the lock from the event loop, which takes it several
# times a request: a fifth of Python's default, so that health and heartbeats stay quick.
_SWITCH_SECONDS = 0.001


@dataclass(frozen=True)
class Settings:
    """What a server is made of, beside its socket and its model."""

    host: str
    key: Key
    origins: OriginRule
    limits: Limits
    model_id: Callable[[Backend], str]


class Service:
    """Runs once. `announce` gets the ready record; `request_stop` may be called from any thread."""

    def __init__(self, settings: Settings, listener: socket.socket, load: Load, announce: Announce) -> None:
        self.exit_code = ExitCode.CLEAN
        self.port: int = listener.getsockname()[1]
        self.engine = EngineThread(load, settings.limits, self)
        self._settings = settings
        self._listener = listener
        self._announce = announce
        self._executor = ThreadPoolExecutor(_PREPARING_THREADS, thread_name_prefix="prepare")
        self._started = time.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurry = False
        self._drain: asyncio.Task[None] | None = None
        self._announced = False
        self._api = Api(
            self.engine, settings.limits, self._executor, settings.model_id, started=int(time.time())
        )
        self._web = _Web(self._uvicorn_config(), self._on_listening, self.request_stop)

    async def run(self) -> ExitCode:
        """Serve until stopped."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        event_stream.own_the_shutdown()
        self._loop = asyncio.get_running_loop()
        await self._web.serve(sockets=[self._listener])
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._announced:
            log_event("stopped", exit_code=int(self.exit_code))
        return self.exit_code

    @property
    def busy(self) -> bool:
        """Whether a thread of this service still works, after `run` has returned."""
        return self.engine.alive or self._api.preparing

    def request_stop(self) -> None:
        """Begin to shut down; a second call cuts the running answer off at once."""
        self._call(self._begin_drain)

    def _uvicorn_config(self) -> uvicorn.Config:
        limits = self._settings.limits
        gate = Gate(
            self._api.application(),
            key=self._settings.key,
            hosts=HostRule.for_listener(self._settings.host, self.port),
            origins=self._settings.origins,
            header_bytes=limits.header_bytes,
            on_refusal=_log_refusal,
        )
        return uvicorn.Config(
            gate,
            loop="asyncio",
            http=bounded_protocol(limits),
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # fractions work
            timeout_graceful_shutdown=int(_CUT_SECONDS),
            h11_max_incomplete_event_size=limits.header_bytes,
        )

    # The engine's life (called in its thread)

    def on_loaded(self, backend: Backend) -> None:
        """Announce that requests are served."""
        self._call(lambda: self._announce_ready(backend))

    def on_load_failed(self, error: Exception) -> None:
        """End the process with a code that tells why."""
        self._call(lambda: self._end_unloaded(error))

    def on_fault(self) -> None:
        """End the process: only a new one can serve again."""
        self._call(lambda: self._end(ExitCode.ENGINE_FAULT))

    def _call(self, function: Callable[[], Any]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    # On the event loop

    async def _on_listening(self) -> None:
        self.engine.start()

    def _announce_ready(self, backend: Backend) -> None:
        model_id = self._settings.model_id(backend)
        try:
            self._announce(ready_record(self._settings.host, self.port, model_id, backend.facts))
        except OSError as error:
            log_fault("output_failed", error)
            self._end(ExitCode.OUTPUT)
            return
        self._announced = True
        seconds = round(time.monotonic() - self._started, 3)
        log_event("ready", port=self.port, model=model_id, seconds=seconds)

    def _end_unloaded(self, error: Exception) -> None:
        if self._drain is not None:  # loading was interrupted because of a stop request
            return
        if isinstance(error, EngineError):
            log_event("load_failed", code=error.code, message=str(error))
            self._end(for_load_error(error))
        else:
            log_fault("load_failed", error)
            self._end(ExitCode.UNEXPECTED)

    def _end(self, code: ExitCode) -> None:
        self.exit_code = code
        self._begin_drain()

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._drain = asyncio.ensure_future(self._drain_and_exit())
        else:
            self._hurry = True

    async def _drain_and_exit(self) -> None:
        self.engine.drain()
        if not await self._until_idle(self._settings.limits.drain_seconds) and self.engine.cut_off():
            self.exit_code = self.exit_code or ExitCode.DEADLINE
            await self._until_idle(_CUT_SECONDS)
        self.engine.stop()
        self._web.should_exit = True

    async def _until_idle(self, seconds: float) -> bool:
        """Wait for the running job, at most `seconds` or until told to hurry."""
        end = time.monotonic() + seconds
        while not self.engine.idle and time.monotonic() < end:
            if self._hurry:
                self._hurry = False
                break
            await asyncio.sleep(0.02)
        return self.engine.idle


class _Web(uvicorn.Server):
    """uvicorn, with signals that begin our shutdown instead of its own."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_listening: Callable[[], Awaitable[None]],
        on_signal: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_listening = on_listening
        self._on_signal = on_signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        self._on_signal()


def _log_refusal(refusal: Refusal) -> None:
    log_event("refused", status=refusal.status, code=refusal.code, limited=True)
