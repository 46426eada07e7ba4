"""Log lines: one JSON object a line on standard error, made of allow-listed fields only.

Nothing that came from a request can get in as text: our own events carry known fields, and of what
libraries log only the logger's name, the exception's class and the place are kept. Lines of
one kind that could flood are counted instead.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TextIO

FIELDS = frozenset(
    {
        "cached_tokens",
        "code",
        "completion_tokens",
        "decode_ms",
        "exit_code",
        "finish",
        "id",
        "message",
        "model",
        "outcome",
        "phase",
        "port",
        "prefill_ms",
        "prompt_tokens",
        "queue_ms",
        "route",
        "seconds",
        "status",
        "stream",
    }
)
_NAME = "prism_inference.server"
_BUFFERED_LINES = 1024
_INTERVAL = 1.0  # seconds between two lines of one kind that is limited

_logger = logging.getLogger(_NAME)


def log_event(event: str, *, level: int = logging.INFO, limited: bool = False, **fields: Any) -> None:
    """Write one event; `limited` ones of the same name appear once a second, with a count of the rest."""
    unknown = fields.keys() - FIELDS
    if unknown:
        raise ValueError(f"log fields {sorted(unknown)} are not in the allow-list")
    _logger.log(level, event, extra={"fields": fields, "limited": limited})


def log_fault(event: str, error: BaseException, **fields: Any) -> None:
    """Write that something failed unexpectedly: class and place of the exception, never its text."""
    _logger.error(event, exc_info=error, extra={"fields": fields, "limited": False})


def configure(stream: TextIO) -> LogWriter:
    """Send all logging of this process to `stream`, as JSON lines."""
    writer = LogWriter(stream)
    writer.addFilter(_RateLimit())
    writer.setFormatter(_JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.WARNING)
    _logger.setLevel(logging.INFO)
    silence_libraries()
    return writer


def silence_libraries() -> None:
    """Keep loggers that would print stream contents from doing so, whatever the root level is."""
    for name in ("sse_starlette", "sse_starlette.sse", "uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)


class LogWriter(logging.Handler):
    """Writes lines from a thread of its own: an owner that does not read them cannot stop the server.

    Lines that find the buffer full are dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str] = queue.Queue(_BUFFERED_LINES)
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Buffer the line of a record."""
        with suppress(queue.Full):
            self._lines.put_nowait(self.format(record))

    def finish(self, seconds: float = 1.0) -> None:
        """Wait until what was logged is written, for at most some seconds."""
        end = time.monotonic() + seconds
        while self._lines.unfinished_tasks and time.monotonic() < end:
            time.sleep(0.005)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError, ValueError):  # nobody reads, or the stream is closed
                self._stream.write(f"{line}\n")
                self._stream.flush()
            self._lines.task_done()


class _JsonLines(logging.Formatter):
    """Formats a record without ever looking at the message arguments of foreign loggers."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
        }
        if record.name == _NAME:
            line["event"] = record.msg
            line |= record.__dict__["fields"]
        else:
            where = f"{record.filename}:{record.lineno}"
            line |= {"event": "library", "logger": record.name, "where": where}
        if record.exc_info and record.exc_info[1] is not None:
            line |= _place(record.exc_info[1])
        if suppressed := record.__dict__.get("suppressed"):
            line["suppressed"] = suppressed
        return json.dumps(line, allow_nan=False, separators=(",", ":"))


class _RateLimit(logging.Filter):
    """Lets one record of a limited kind through a second; the next one carries how many were not."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        ours = record.name == _NAME
        if ours and not record.__dict__["limited"]:
            return True
        kind = str(record.msg) if ours else record.name
        now = time.monotonic()
        if now - self._last.get(kind, -_INTERVAL) < _INTERVAL:
            self._suppressed[kind] = self._suppressed.get(kind, 0) + 1
            return False
        self._last[kind] = now
        record.suppressed = self._suppressed.pop(kind, 0)
        return True


def _place(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    place = {"error": type(error).__name__}
    if frames:
        place["where"] = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}"
    return place
