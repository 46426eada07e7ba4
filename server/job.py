"""One admitted request on its way through the engine: its work, its place in the queue, its events.

The engine's thread posts events, the event loop reads them. A job ends exactly once, with a result or an
error, and ending it frees its place and writes its log line, whoever still listens.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from engine.receipt import PromptPolicies
from engine.runtime import Cancellation, Finish, GenerationOptions
from engine.sampling import Sampler
from engine.text_pipeline import Delta
from server.backend import Reasoning
from server.errors import ApiError
from server.logs import log_event

Phase = Literal["queued", "prefill", "decode"]


@dataclass(frozen=True)
class Work:
    """What to generate; the prompt fits the context together with the output.

    `receipt` says how the prompt came, where a receipt is wanted.
    """

    prompt: tuple[int, ...]
    options: GenerationOptions
    sampler: Sampler
    stops: tuple[str, ...]
    reasoning: Reasoning
    receipt: PromptPolicies | None = None


@dataclass(frozen=True)
class Finished:
    """How a successful answer ended, and what it took."""

    finish: Finish
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    prefill_seconds: float
    decode_seconds: float
    receipt: dict[str, Any] | None = None


Event = Delta | Finished | ApiError


class Job:
    """Thread-safe. Made on the event loop that will read its events."""

    def __init__(self, request_id: str, work: Work, release: Callable[[], None]) -> None:
        """`release` frees the place in the queue; it is called once."""
        self.id = request_id
        self.work = work
        self.cancellation = Cancellation()
        self.phase: Phase = "queued"
        self.progress = (0, len(work.prompt))  # prompt tokens done and in all
        self.started: float | None = None
        self._submitted = time.monotonic()
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._lock = threading.Lock()
        self._ended = False

    async def next_event(self) -> Event:
        """The next event; after a `Finished` or an error there is none."""
        return await self._events.get()

    def comment(self) -> str:
        """Where the job is, for the comment that keeps its stream alive."""
        done, total = self.progress
        return f"prefill {done}/{total}" if self.phase == "prefill" else self.phase

    def start(self) -> None:
        """The engine's thread takes the job up."""
        self.started = time.monotonic()
        self.phase = "prefill"

    def post(self, event: Event) -> None:
        """Hand an event to the event loop; without one any more, it is dropped."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def end(self, result: Finished | ApiError) -> None:
        """End the job with its last event; later calls do nothing."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._release()
        self._log(result)
        self.post(result)

    def _log(self, result: Finished | ApiError) -> None:
        now = time.monotonic()
        queued = (self.started or now) - self._submitted
        fields: dict[str, Any] = {"id": self.id, "phase": self.phase, "queue_ms": round(queued * 1000)}
        if isinstance(result, ApiError):
            outcome = "cancelled" if result.code == "cancelled" else "error"
            fields |= {"outcome": outcome, "code": result.code, "prompt_tokens": len(self.work.prompt)}
        else:
            fields |= {
                "outcome": "ok",
                "finish": result.finish,
                "prompt_tokens": result.prompt_tokens,
                "cached_tokens": result.cached_tokens,
                "completion_tokens": result.completion_tokens,
                "prefill_ms": round(result.prefill_seconds * 1000),
                "decode_ms": round(result.decode_seconds * 1000),
            }
        log_event("generation", **fields)
