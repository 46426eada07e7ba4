from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from server import logs
from server.logs import log_event, log_fault


@pytest.fixture
def lines() -> Iterator[Any]:
    """The log of the test as parsed lines; logging is as before afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("prism_inference.server")
    before = root.handlers[:], root.level, ours.level
    stream = io.StringIO()
    writer = logs.configure(stream)

    def written() -> list[Any]:
        writer.finish()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    yield written
    root.handlers[:], root.level, ours.level = before


def test_events_are_json_lines_with_known_fields(lines: Any) -> None:
    """Time, level, event and the fields given; a field that is not in the list is a mistake."""
    log_event("ready", port=1234, model="a\nb\x1b[31m\u202e")
    (line,) = lines()
    assert line["event"] == "ready"
    assert line["level"] == "info"
    assert line["port"] == 1234
    assert line["model"] == "a\nb\x1b[31m\u202e"
    with pytest.raises(ValueError, match="prompt"):
        log_event("ready", prompt="text")


def test_a_line_is_one_line_of_plain_ascii(lines: Any) -> None:
    """Line ends, escapes and right-to-left marks in a value cannot break or colour the log."""
    stream = io.StringIO()
    writer = logs.configure(stream)
    log_event("ready", model="a\nb\x1b[31m\u202e\u2028")
    writer.finish()
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()
    assert lines() == []


def test_libraries_cannot_log_contents(lines: Any) -> None:
    """Of their records only the logger and the class and place of an exception are kept."""
    logging.getLogger("some.library").error("secret %s", "sentinel")
    try:
        raise KeyError("sentinel")
    except KeyError:
        logging.getLogger("other.library").exception("sentinel")
    first, second = lines()
    assert (first["event"], first["logger"]) == ("library", "some.library")
    assert second["error"] == "KeyError"
    assert second["where"].startswith("test_logs.py:")
    assert "sentinel" not in json.dumps([first, second])


def test_stream_contents_are_not_logged_at_any_level(lines: Any) -> None:
    """Even with everything set to DEBUG."""
    logging.getLogger().setLevel(logging.DEBUG)
    logging.getLogger("sse_starlette.sse").debug("chunk: %s", b"sentinel")
    logging.getLogger("uvicorn.error").debug("sentinel")
    assert lines() == []


def test_floods_are_counted(lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a second of a limited kind; the next one says how many there were between."""
    now = [100.0]
    monkeypatch.setattr("server.logs.time.monotonic", lambda: now[0])
    for _ in range(1000):
        log_event("refused", status=401, limited=True)
    log_event("ready", port=1)
    now[0] += 1.5
    log_event("refused", status=401, limited=True)
    assert [(line["event"], line.get("suppressed")) for line in lines()] == [
        ("refused", None),
        ("ready", None),
        ("refused", 999),
    ]


def test_a_fault_tells_class_and_place_alone(lines: Any) -> None:
    """The text of an exception may hold anything."""
    try:
        raise ValueError("sentinel")
    except ValueError as error:
        log_fault("internal_error", error, id="abc")
    (line,) = lines()
    assert line["error"] == "ValueError"
    assert line["id"] == "abc"
    assert line["level"] == "error"
    assert "sentinel" not in json.dumps(line)


def test_a_log_that_nobody_reads_holds_nothing_up(lines: Any) -> None:
    """A pipe that is full, and lines beyond the buffer."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "w", encoding="utf-8") as stream:
        writer = logs.configure(stream)
        begin = time.monotonic()
        for _ in range(3000):
            log_event("ready", model="x" * 200)
        writer.finish(0.1)
        assert time.monotonic() - begin < 5
        assert lines() == []
        os.set_blocking(reading, False)
        while writer._lines.unfinished_tasks:
            with suppress(BlockingIOError):
                os.read(reading, 1 << 20)
