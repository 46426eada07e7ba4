"""How answers look on the wire: OpenAI's chat and completion objects, whole and in chunks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

from engine.runtime import Finish
from engine.text_pipeline import Delta
from server.job import Finished


class Shape(ABC):
    """The objects of one answer; all of them carry the same id, time and model."""

    prefix: str  # of the answer's id
    whole_object: str
    chunk_object: str

    def __init__(self, request_id: str, model: str, fingerprint: str) -> None:
        self._request_id = request_id
        self._created = int(time.time())
        self._model = model
        self._fingerprint = fingerprint

    @abstractmethod
    def choice(self, content: str, reasoning: str, finish: Finish) -> dict[str, Any]:
        """The one choice of an answer that is sent whole."""

    @abstractmethod
    def opening(self) -> dict[str, Any] | None:
        """The choice of the first chunk, if there is one before any text."""

    @abstractmethod
    def delta(self, delta: Delta) -> dict[str, Any]:
        """The choice of a chunk with text."""

    @abstractmethod
    def closing(self, finish: Finish) -> dict[str, Any]:
        """The choice of the last chunk, which tells how the answer ended."""

    def whole(self, content: str, reasoning: str, finished: Finished) -> dict[str, Any]:
        """An answer in one piece."""
        choice = self.choice(content, reasoning, finished.finish)
        whole = {**self._base(self.whole_object), "choices": [choice], "usage": usage(finished)}
        return whole | receipt(finished)

    def chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        """A chunk with one choice."""
        return {**self._base(self.chunk_object), "choices": [choice]}

    def usage_chunk(self, finished: Finished) -> dict[str, Any]:
        """The chunk without choices that reports usage."""
        return {**self._base(self.chunk_object), "choices": [], "usage": usage(finished)}

    def _base(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"{self.prefix}-{self._request_id}",
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._fingerprint,
        }


class ChatShape(Shape):
    """`/v1/chat/completions`; reasoning goes into `reasoning_content`, as many clients expect."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def choice(self, content: str, reasoning: str, finish: Finish) -> dict[str, Any]:
        """A message."""
        message = {"role": "assistant", "content": content, "refusal": None}
        if reasoning:
            message["reasoning_content"] = reasoning
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}

    def opening(self) -> dict[str, Any]:
        """The role, with empty content."""
        return _chat_choice({"role": "assistant", "content": ""})

    def delta(self, delta: Delta) -> dict[str, Any]:
        """A stretch of content or reasoning."""
        return _chat_choice({"content" if delta.kind == "content" else "reasoning_content": delta.text})

    def closing(self, finish: Finish) -> dict[str, Any]:
        """An empty delta with the reason."""
        return _chat_choice({}, finish)


class CompletionShape(Shape):
    """`/v1/completions`."""

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def choice(self, content: str, reasoning: str, finish: Finish) -> dict[str, Any]:
        """The text; plain completions have no reasoning apart from it."""
        return _text_choice(reasoning + content, finish)

    def opening(self) -> None:
        """Nothing comes before the text."""

    def delta(self, delta: Delta) -> dict[str, Any]:
        """A stretch of text."""
        return _text_choice(delta.text)

    def closing(self, finish: Finish) -> dict[str, Any]:
        """Empty text with the reason."""
        return _text_choice("", finish)


def receipt(finished: Finished) -> dict[str, Any]:
    """The receipt, for the answer or its last chunk with a choice, if one was asked for."""
    return {} if finished.receipt is None else {"receipt": finished.receipt}


def usage(finished: Finished) -> dict[str, Any]:
    """Token counts; the stop token at the end is in none of them."""
    return {
        "prompt_tokens": finished.prompt_tokens,
        "completion_tokens": finished.completion_tokens,
        "total_tokens": finished.prompt_tokens + finished.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": finished.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": finished.reasoning_tokens},
    }


def _chat_choice(delta: dict[str, str], finish: Finish | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _text_choice(text: str, finish: Finish | None = None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
