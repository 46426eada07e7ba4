"""The routes and what they do; everything behind the gate.

Each generating route goes the same way: bounded body, a place in the queue, then parsing and tokenising on
a thread of their own, then the queue, then the answer. Whatever can be refused is refused before the
status line, as a plain error.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import asdict
from typing import Any, TypeVar
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from engine.errors import EngineError
from engine.json_line import to_json
from server import generation_fields
from server.answers import collect, stream
from server.backend import Backend
from server.chat_request import parse_chat
from server.completion_request import parse_completion
from server.engine_thread import EngineThread
from server.errors import ApiError, from_engine, internal_error
from server.event_stream import EventStream
from server.json_body import parse_object, read_body
from server.limits import Limits
from server.logs import log_fault
from server.shapes import ChatShape, CompletionShape, Shape
from server.token_request import detokenize, tokenize

T = TypeVar("T")
ParseRequest = Callable[[dict[str, Any], str, Backend, Limits], generation_fields.Request]


class Api:
    """The endpoints. `model_id` names the model once it is loaded; `started` is a Unix time."""

    def __init__(
        self,
        engine: EngineThread,
        limits: Limits,
        executor: Executor,
        model_id: Callable[[Backend], str],
        started: int,
    ) -> None:
        """`executor`: threads for parsing and tokenising, so that big inputs do not stop the event loop."""
        self._engine = engine
        self._limits = limits
        self._executor = executor
        self._model_id = model_id
        self._started = started
        self._asides: set[Future[Any]] = set()

    @property
    def preparing(self) -> bool:
        """Whether a request is being parsed or tokenised."""
        return bool(self._asides)

    def application(self) -> Starlette:
        """The application with all routes."""
        app = Starlette(
            routes=[
                Route("/livez", self.alive),
                Route("/readyz", self.ready),
                Route("/health", self.ready),
                Route("/v1/capabilities", self.capabilities),
                Route("/v1/models", self.models),
                Route("/v1/models/{model_id:path}", self.model),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.completion, methods=["POST"]),
                Route("/v1/tokenize", self.tokenize, methods=["POST"]),
                Route("/v1/detokenize", self.detokenize, methods=["POST"]),
            ],
            exception_handlers={
                ApiError: _on_api_error,
                EngineError: _on_engine_error,
                HTTPException: _on_http_error,
                ClientDisconnect: _on_disconnect,
                Exception: _on_mistake,
            },
        )
        app.router.redirect_slashes = False
        return app

    # Health

    async def alive(self, _request: Request) -> Response:
        """Answers while the process runs."""
        return _json({"status": "alive"})

    async def ready(self, _request: Request) -> Response:
        """200 only while requests are served."""
        status = self._engine.status
        return _json({"status": status}, 200 if status == "ready" else 503)

    # The model

    async def capabilities(self, _request: Request) -> Response:
        """What the engine can do, what is served, and within which limits."""
        backend = self._engine.backend
        served = {"id": self._model_id(backend), **asdict(backend.facts)}
        return _json({**backend.capabilities(), "served": served, "limits": asdict(self._limits)})

    async def models(self, _request: Request) -> Response:
        """The list of the one model."""
        return _json({"object": "list", "data": [self._model(self._engine.backend)]})

    async def model(self, request: Request) -> Response:
        """The one model by its id."""
        model = self._model(self._engine.backend)
        if unquote(request.path_params["model_id"]) != model["id"]:
            raise ApiError(404, "This server does not serve that model.", code="model_not_found")
        return _json(model)

    def _model(self, backend: Backend) -> dict[str, Any]:
        return {
            "id": self._model_id(backend),
            "object": "model",
            "created": self._started,
            "owned_by": "prism-inference",
        }

    # Tokens

    async def tokenize(self, request: Request) -> Response:
        """Exact token ids and counts."""
        backend = self._engine.backend
        body = await read_body(request, self._limits.body_bytes)
        model_id = self._model_id(backend)
        return _json(await self._aside(lambda: tokenize(parse_object(body), model_id, backend)))

    async def detokenize(self, request: Request) -> Response:
        """Exact bytes and text of token ids."""
        backend = self._engine.backend
        body = await read_body(request, self._limits.body_bytes)
        model_id = self._model_id(backend)
        return _json(await self._aside(lambda: detokenize(parse_object(body), model_id, backend)))

    # Generating

    async def chat(self, request: Request) -> Response:
        """OpenAI's chat completions."""
        return await self._generate(request, parse_chat, ChatShape)

    async def completion(self, request: Request) -> Response:
        """OpenAI's completions."""
        return await self._generate(request, parse_completion, CompletionShape)

    async def _generate(self, request: Request, parse: ParseRequest, shape_of: type[Shape]) -> Response:
        backend = self._engine.backend
        body = await read_body(request, self._limits.body_bytes)
        model_id, request_id = self._model_id(backend), secrets.token_hex(12)
        with self._engine.reserve() as place:
            parsed = await self._aside(lambda: parse(parse_object(body), model_id, backend, self._limits))
            job = self._engine.submit(place, request_id, parsed.work)
        facts = backend.facts
        shape = shape_of(request_id, model_id, f"{facts.contract}-{facts.sha256[:16]}")
        headers = {"x-request-id": request_id}
        if not parsed.stream:
            answer = await collect(job, shape, request, self._engine)
            return Response(answer, headers=headers, media_type="application/json")
        return EventStream(
            stream(job, shape, parsed.include_usage),
            heartbeat_seconds=self._limits.heartbeat_seconds,
            comment=job.comment,
            on_close=lambda: self._engine.cancel(job),
            headers=headers,
        )

    async def _aside(self, work: Callable[[], T]) -> T:
        """Run `work` on a thread that is neither the event loop's nor the engine's."""
        future = self._executor.submit(work)
        self._asides.add(future)
        future.add_done_callback(self._asides.discard)
        return await asyncio.wrap_future(future)


def _json(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, media_type="application/json")


def _on_api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


def _on_engine_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return from_engine(error).response()


def _on_http_error(_request: Request, error: Exception) -> Response:
    """Routing's own refusals: 404 and 405."""
    assert isinstance(error, HTTPException)
    message = {404: "There is no such route.", 405: "The route does not have this method."}
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
    answer = ApiError(
        error.status_code,
        message.get(error.status_code, "The request was refused."),
        "not_found_error" if error.status_code == 404 else "invalid_request_error",
        code=code,
        headers={name.lower(): value for name, value in (error.headers or {}).items()},
    )
    return answer.response()


def _on_disconnect(_request: Request, _error: Exception) -> Response:
    """Nobody is there to read this."""
    return Response(status_code=400)


def _on_mistake(_request: Request, error: Exception) -> Response:
    log_fault("internal_error", error)
    return internal_error().response()
