"""The ready record: the one line that this program writes to its standard output.

Everything else that is printed in the process, by libraries too, goes to standard error, so an owner can
trust the stream.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from server.backend import ModelFacts

Announce = Callable[[dict[str, Any]], None]


def ready_record(host: str, port: int, model_id: str, facts: ModelFacts) -> dict[str, Any]:
    """What an owner needs to find the server and to know what it serves."""
    authority = f"[{host}]" if ":" in host else host
    return {
        "type": "ready",
        "version": 1,
        "pid": os.getpid(),
        "host": host,
        "port": port,
        "base_url": f"http://{authority}:{port}/v1",
        "model": model_id,
        "model_sha256": facts.sha256,
        "model_bytes": facts.nbytes,
        "architecture": facts.architecture,
        "contract": facts.contract,
        "context": facts.context,
        "kernel": facts.kernel,
        "huge_page_bytes": facts.huge_page_bytes,
    }


def take_standard_output() -> Announce:
    """Keep standard output for the record alone; later prints go to standard error.

    The function returned writes a record as one line of ASCII JSON. Both raise `OSError`.
    """
    if sys.stdout is None:  # descriptor 1 may be anything then
        raise OSError("standard output is closed")
    protocol = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def announce(record: dict[str, Any]) -> None:
        protocol.write(json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n")

    return announce
