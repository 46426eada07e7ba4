"""A client's side of the pipes to a worker: requests out, records in, and what can go wrong with either.

Errors say in fixed words what went wrong; nothing of a request or a record is in them. What the records mean
is for the clients to know, and the streams belong to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from engine.errors import EngineError
from engine.strict_json import StrictJsonError, parse_object
from engine.workers.frames import FrameReader, OversizedFrameError, UnterminatedFrameError, write_frame


class WorkerFaultError(EngineError):
    """The worker is gone or answered against the protocol; the client is of no more use."""

    code = "worker_fault"


class WorkerMismatchError(WorkerFaultError):
    """The worker works, but is not the one that was expected."""

    code = "worker_mismatch"


class Connection:
    """Reads `responses`, the worker's output, and writes `requests`: buffered, blocking streams."""

    def __init__(self, responses: IO[bytes], requests: IO[bytes], response_frame_bytes: int) -> None:
        self.responses = responses
        self.requests = requests
        self._reader = FrameReader(responses, response_frame_bytes)

    def send(self, request: Mapping[str, object], frame_bytes: int) -> None:
        """Send one frame of at most `frame_bytes` before its LF.

        Raises `OversizedFrameError`, with nothing sent, or `WorkerFaultError`.
        """
        try:
            write_frame(self.requests, request, frame_bytes)
        except (OSError, ValueError):  # ValueError: the stream is closed
            raise WorkerFaultError("the request cannot be sent to the worker") from None

    def receive(self) -> dict[str, Any]:
        """The next record, or a `WorkerFaultError`."""
        try:
            frame = self._reader.read()
            if frame is None:
                raise WorkerFaultError("the worker has ended")
            return parse_object(frame)
        except UnterminatedFrameError:
            raise WorkerFaultError("the worker has ended inside a record") from None
        except OversizedFrameError:
            raise WorkerFaultError("the worker's record is longer than the bound on responses") from None
        except StrictJsonError:
            raise WorkerFaultError("the worker's record is not acceptable JSON") from None
        except (OSError, ValueError):
            raise WorkerFaultError("the worker's output cannot be read") from None
