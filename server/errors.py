"""Errors as HTTP answers: one exception for refused requests, one table from engine errors to statuses.

Clients of the OpenAI interface repeat 429 and 5xx by themselves, so what cannot get better by repeating
is 4xx, or says `x-should-retry: false`. Messages name fields and numbers, never prompt text.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from auth.refusals import error_document
from engine.errors import (
    BudgetError,
    CancelledError,
    ContextError,
    DeadlineError,
    EngineError,
    EngineFaultError,
    InvalidInputError,
    UnsupportedTemplateError,
)
from engine.json_line import to_json

NO_RETRY = {"x-should-retry": "false"}


class ApiError(Exception):
    """A request that gets an error answer; `str(error)` is the message the client sees."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request_error",
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}

    def document(self) -> dict[str, dict[str, str | None]]:
        """The error object for a body or for the last event of a stream."""
        return error_document(str(self), self.kind, self.param, self.code)

    def response(self) -> Response:
        """The complete answer."""
        return Response(to_json(self.document()), self.status, self.headers, media_type="application/json")


def bad_field(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """A 400 for the field at `param` (a path such as `messages[2].content`)."""
    return ApiError(400, f"{param}: {message}", param=param, code=code)


@dataclass(frozen=True)
class _Answer:
    status: int
    kind: str
    code: str | None = None  # None: the engine error's own code
    message: str | None = None  # None: the engine error's own message
    retry: bool = True


# The first class that an error is an instance of decides, so subclasses stand before their bases.
_ANSWERS: tuple[tuple[type[EngineError], _Answer], ...] = (
    (ContextError, _Answer(400, "invalid_request_error")),
    (InvalidInputError, _Answer(400, "invalid_request_error")),
    (UnsupportedTemplateError, _Answer(400, "invalid_request_error")),
    (CancelledError, _Answer(503, "server_error", retry=False)),
    (DeadlineError, _Answer(504, "server_error", retry=False)),
    (BudgetError, _Answer(500, "server_error", retry=False)),
    (EngineFaultError, _Answer(500, "server_error", retry=False)),
    (EngineError, _Answer(500, "server_error", "internal_error", "The engine failed.", retry=False)),
)


def from_engine(error: EngineError) -> ApiError:
    """The HTTP answer to an engine error."""
    answer = next(answer for kind, answer in _ANSWERS if isinstance(error, kind))
    return ApiError(
        answer.status,
        answer.message or str(error),
        answer.kind,
        param=error.field if isinstance(error, InvalidInputError) else None,
        code=answer.code or error.code,
        headers={} if answer.retry else NO_RETRY,
    )


def internal_error() -> ApiError:
    """The answer to a mistake in this program; what it was is in the log alone."""
    return ApiError(
        500, "The server failed on this request.", "server_error", code="internal_error", headers=NO_RETRY
    )


def not_ready(status: str) -> ApiError:
    """The 503 of a server that is `loading`, `draining` or `failed`."""
    messages = {
        "loading": "The model is still loading.",
        "draining": "The server is shutting down.",
        "failed": "The engine has failed; the server must be started again.",
    }
    headers = {"retry-after": "2", "retry-after-ms": "2000"} if status == "loading" else NO_RETRY
    return ApiError(503, messages[status], "server_error", code=status, headers=headers)
