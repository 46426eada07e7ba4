"""A job's events as an HTTP answer: collected into one object, or streamed as they come.

Both read the same events, so both give the same text. A client that goes away cancels the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sse_starlette import ServerSentEvent
from starlette.requests import ClientDisconnect, Request

from engine.json_line import to_json
from engine.text_pipeline import Delta
from server.engine_thread import EngineThread
from server.errors import ApiError
from server.event_stream import BrokenOffError, comment_event, data_event
from server.job import Finished, Job
from server.shapes import Shape, receipt

DONE = "[DONE]"


async def stream(job: Job, shape: Shape, include_usage: bool) -> AsyncIterator[ServerSentEvent]:
    """The events of a streamed answer: a comment at once, then chunks, then `[DONE]`; or an error event."""
    nothing = {"usage": None} if include_usage else {}
    yield comment_event(job.comment())
    opening = shape.opening()
    while True:
        event = await job.next_event()
        await asyncio.sleep(0)  # events that are waiting already must not starve the other connections
        if isinstance(event, ApiError):
            yield data_event(to_json(event.document()))
            raise BrokenOffError
        if opening is not None:
            yield data_event(to_json(shape.chunk(opening) | nothing))
            opening = None
        if isinstance(event, Finished):
            break
        yield data_event(to_json(shape.chunk(shape.delta(event)) | nothing))
    yield data_event(to_json(shape.chunk(shape.closing(event.finish)) | nothing | receipt(event)))
    if include_usage:
        yield data_event(to_json(shape.usage_chunk(event)))
    yield data_event(DONE)


async def collect(job: Job, shape: Shape, request: Request, engine: EngineThread) -> str:
    """The whole answer as JSON. Raises the job's error, or `ClientDisconnect` after cancelling the job."""
    reading = asyncio.create_task(_read(job))
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise ClientDisconnect
        content, reasoning, finished = reading.result()
    finally:
        engine.cancel(job)
        reading.cancel()
        watching.cancel()
    return to_json(shape.whole(content, reasoning, finished))


async def _read(job: Job) -> tuple[str, str, Finished]:
    parts: dict[str, list[str]] = {"content": [], "reasoning": []}
    while isinstance(event := await job.next_event(), Delta):
        parts[event.kind].append(event.text)
    if isinstance(event, ApiError):
        raise event
    return "".join(parts["content"]), "".join(parts["reasoning"]), event


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
