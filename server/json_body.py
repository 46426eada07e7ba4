"""Request bodies: bounded while they are received, then parsed as one strict JSON object.

What is refused is a 413, 415 or 400. Which fields the object may have is not decided here.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from engine import strict_json
from server.errors import ApiError, bad_field


async def read_body(request: Request, limit: int) -> bytes:
    """The body of `request`, refused with 413 as soon as it is known to exceed `limit` bytes."""
    too_large = ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")
    _check_content(request)
    declared = request.headers.get("content-length")
    if declared is not None and int(declared) > limit:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise too_large
        body += chunk
    return bytes(body)


def _check_content(request: Request) -> None:
    kinds = request.headers.getlist("content-type")
    kind, _, parameters = (kinds[0] if len(kinds) == 1 else "").partition(";")
    if kind.strip().lower() != "application/json" or parameters.strip().lower() not in (
        "",
        "charset=utf-8",
        'charset="utf-8"',
    ):
        raise ApiError(415, "The content type must be application/json.", code="unsupported_media_type")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "Compressed bodies are not supported.", code="unsupported_media_type")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object that `body` holds, or a 400."""
    try:
        return strict_json.parse_object(body)
    except strict_json.StrictJsonError as error:
        if error.field is not None:
            raise bad_field(error.field, str(error)) from None
        message = f"The body is not acceptable JSON: {error}."
        raise ApiError(400, message, code=error.code) from None
