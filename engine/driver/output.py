"""Writes records to standard output as flushed JSON lines in UTF-8, whatever the system's encoding is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from engine.json_line import to_json


def write_record(record: Mapping[str, Any]) -> None:
    """One compact JSON object on a line of its own. Raises `OSError` if it cannot be written."""
    write_text(to_json(record) + "\n")


def write_text(text: str) -> None:
    """Text with LF line ends, at once."""
    sys.stdout.buffer.write(text.encode("utf-8"))
    sys.stdout.buffer.flush()


def abandon_output() -> None:
    """After a failed write: let the interpreter flush into nothing, so that it does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
