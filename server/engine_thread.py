"""The one thread that loads the model and runs the jobs, and the bounded queue in front of it.

One job runs, up to `queue` wait in order, more are refused. A place is reserved before a request's text is
tokenised and is free again when its job ends. All methods may be called from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol, Self

from engine.artifact import Progress
from engine.errors import CancelledError
from server.backend import Backend
from server.errors import ApiError, from_engine, internal_error, not_ready
from server.generation import perform
from server.job import Job, Work
from server.limits import Limits
from server.logs import log_fault

Status = Literal["loading", "ready", "draining", "failed"]
Load = Callable[[Progress], Backend]

_OVERDUE = 30.0  # seconds past its deadline after which a running job means that the engine hangs


class Listener(Protocol):
    """Hears of the engine's life; called in its thread."""

    def on_loaded(self, backend: Backend) -> None:
        """The model is ready to serve."""

    def on_load_failed(self, error: Exception) -> None:
        """The model cannot be loaded; the thread has ended."""

    def on_fault(self) -> None:
        """The engine cannot go on; the thread has ended."""


class Place:
    """A reserved place in the queue; as a context manager it is given back unless a job took it over."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._taken = False

    def take(self) -> Callable[[], None]:
        """Hand the duty to release over to the caller."""
        self._taken = True
        return self._release

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._taken:
            self._release()


class EngineThread:
    """Owns the backend. `load` is called in the thread and may be interrupted through its progress."""

    def __init__(self, load: Load, limits: Limits, listener: Listener) -> None:
        self._load = load
        self._limits = limits
        self._listener = listener
        self._wake = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._places = 0
        self._mean_seconds = 5.0  # of one job, exponentially averaged
        self._backend: Backend | None = None
        self._draining = self._stopping = self._failed = False
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    # What the event loop asks

    @property
    def status(self) -> Status:
        """Whether requests are served, and why not."""
        with self._wake:
            if self._failed or (self._backend is not None and not self._thread.is_alive()) or self._hangs():
                return "failed"
            if self._draining:
                return "draining"
            return "loading" if self._backend is None else "ready"

    @property
    def backend(self) -> Backend:
        """The backend, or a 503."""
        status = self.status
        if status != "ready" or self._backend is None:
            raise not_ready(status)
        return self._backend

    @property
    def places(self) -> int:
        """Places in use: preparing, waiting and running."""
        return self._places

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def reserve(self) -> Place:
        """A place, or a 429 that says when to come again."""
        with self._wake:
            if self._places > self._limits.queue:
                seconds = min(max(math.ceil(self._mean_seconds), 1), 60)
                raise ApiError(
                    429,
                    "The queue is full; try again later.",
                    "rate_limit_error",
                    code="server_busy",
                    headers={"retry-after": str(seconds), "retry-after-ms": str(seconds * 1000)},
                )
            self._places += 1
        return Place(self._release)

    def submit(self, place: Place, request_id: str, work: Work) -> Job:
        """Put `work` in the queue; called on the event loop that reads the job."""
        with self._wake:
            if self._draining or self._failed:
                raise not_ready("failed" if self._failed else "draining")
            job = Job(request_id, work, place.take())
            self._waiting.append(job)
            self._wake.notify_all()
        return job

    def cancel(self, job: Job) -> None:
        """End a job that nobody waits for any more; does nothing to one that has ended."""
        with self._wake:
            waiting = job in self._waiting
            if waiting:
                self._waiting.remove(job)
        job.cancellation.cancel()
        if waiting:
            job.end(from_engine(CancelledError("the request was cancelled")))

    # Shutting down

    def drain(self) -> None:
        """Take no more work, interrupt loading, and end what waits; the running job goes on."""
        with self._wake:
            self._draining = True
            waiting = list(self._waiting)
            self._waiting.clear()
        for job in waiting:
            job.end(not_ready("draining"))

    def cut_off(self) -> bool:
        """Cancel the running job, tell its client at once, and say whether there was one."""
        with self._wake:
            job = self._running
        if job is not None:
            job.cancellation.cancel()
            job.end(not_ready("draining"))
        return job is not None

    def stop(self) -> None:
        """Let the thread end once nothing runs."""
        self.drain()
        with self._wake:
            self._stopping = True
            self._wake.notify_all()

    @property
    def idle(self) -> bool:
        """Whether no job runs or waits."""
        with self._wake:
            return self._running is None and not self._waiting

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    # The thread

    def _main(self) -> None:
        try:
            backend = self._load(self._check_loading)
        except Exception as error:  # the outermost layer of this thread
            self._failed = not self._draining
            self._listener.on_load_failed(error)
            return
        with self._wake:
            self._backend = backend
        self._listener.on_loaded(backend)
        try:
            self._serve(backend)
        except Exception as error:  # only a reset that failed gets here
            log_fault("engine_fault", error)
            self._fail()

    def _check_loading(self, _done: int, _total: int) -> None:
        if self._draining:
            raise CancelledError("loading was cancelled")

    def _serve(self, backend: Backend) -> None:
        while (job := self._next()) is not None:
            begin = time.monotonic()
            try:
                perform(job, backend, self._limits.generation_seconds, self._limits.output_bytes)
            except Exception as error:  # a mistake in this program; the runtime has rolled back
                log_fault("internal_error", error, id=job.id)
                job.end(internal_error())
            finally:
                with self._wake:
                    self._running = None
                    self._mean_seconds += 0.3 * (time.monotonic() - begin - self._mean_seconds)
            if backend.poisoned:
                backend.reset()

    def _next(self) -> Job | None:
        with self._wake:
            while not self._waiting and not self._stopping:
                self._wake.wait()
            if not self._waiting:
                return None
            self._running = self._waiting.popleft()
            return self._running

    def _fail(self) -> None:
        with self._wake:
            self._failed = True
            waiting = list(self._waiting)
            self._waiting.clear()
        for job in waiting:
            job.end(not_ready("failed"))
        self._listener.on_fault()

    def _release(self) -> None:
        with self._wake:
            self._places -= 1

    def _hangs(self) -> bool:
        job = self._running
        if job is None or job.started is None:
            return False
        return time.monotonic() - job.started > self._limits.generation_seconds + _OVERDUE
