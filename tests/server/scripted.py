"""A backend that plays scripts instead of computing: any pieces, delays, faults, at any step.

Token ids below 256 are bytes; the script's pieces get ids of their own as they are played.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.chat.messages import ChatOptions, Message
from engine.errors import CancelledError, DeadlineError
from engine.runtime import Cancellation, Completion, GenerationOptions
from engine.sampling import Sampler
from server.backend import ChatPrompt, InsertSpecial, ModelFacts, Reasoning, SpecialInput

EOS = 256
FIRST_PIECE = 1000
VOCABULARY = 1_000_000


@dataclass
class Script:
    """What one generation does. An exception among the pieces is raised at that step."""

    pieces: Sequence[bytes | Exception] = (b"Hello", b" world")
    prefill_seconds: float = 0.0
    token_seconds: float = 0.0
    endless: bool = False  # repeat the pieces up to max_tokens
    deaf: bool = False  # do not look at the cancellation


@dataclass
class Played:
    """What was asked of the backend in one generation."""

    prompt: tuple[int, ...]
    options: GenerationOptions
    sampler: Sampler
    steps: int = 0
    ended: str = "running"


@dataclass
class ScriptedBackend:
    """Implements `server.backend.Backend`. Scripts are played in order; the last one again and again."""

    scripts: list[Script] = field(default_factory=lambda: [Script()])
    context: int = 4096
    template: str | None = "scripted"
    reasoning: Reasoning = "off"
    encode_seconds: float = 0.0
    poisoned: bool = False
    played: list[Played] = field(default_factory=list)
    resets: int = 0
    fail_reset: bool = False
    _pieces: dict[int, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def facts(self) -> ModelFacts:
        """A made-up model."""
        return ModelFacts(
            "ab" * 32,
            12345,
            "scripted",
            "Scripted",
            "scripted:canon-2/16",
            self.context,
            VOCABULARY,
            self.template,
            "scripted",
            1,
            None,
        )

    def encode(self, text: str, special_input: SpecialInput, insert_special: InsertSpecial) -> list[int]:
        """One token a byte; parsing finds `<eos>`, insertion appends it."""
        self._busy(self.encode_seconds)
        tokens: list[int] = []
        for index, part in enumerate(text.split("<eos>") if special_input == "parse" else [text]):
            tokens += [EOS] * bool(index) + list(part.encode("utf-8"))
        return tokens + [EOS] * (insert_special == "model")

    def encode_chat(self, messages: Sequence[Message], options: ChatOptions) -> ChatPrompt:
        """Roles and contents as bytes; the end of each message is EOS."""
        tokens: list[int] = []
        for message in messages:
            tokens += [*message.role.encode(), *message.content.encode("utf-8"), EOS]
        reasoning: Reasoning = "outside" if options.enable_thinking is False else self.reasoning
        return ChatPrompt(tokens, len(tokens) - 1, (EOS,), reasoning)

    def stop_tokens(self, turn_ends: Sequence[int]) -> tuple[int, ...]:
        """EOS."""
        return tuple(dict.fromkeys((EOS, *turn_ends)))

    def decode(self, tokens: Sequence[int]) -> bytes:
        """Bytes; other ids give nothing."""
        return bytes(token for token in tokens if token < 256)

    def shown(self, token: int) -> bytes:
        """The piece that was played as this token."""
        return self._pieces[token]

    def generate(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        *,
        sampler: Sampler,
        cancellation: Cancellation,
        deadline: float,
        on_token: Callable[[int], bool],
        on_prefill: Callable[[int, int], None],
    ) -> Completion:
        """Play the next script."""
        script = self.scripts[min(len(self.played), len(self.scripts) - 1)]
        played = Played(tuple(prompt), options, sampler)
        self.played.append(played)
        try:
            completion = self._play(script, played, cancellation, deadline, on_token, on_prefill)
        except BaseException as error:
            played.ended = type(error).__name__
            raise
        played.ended = completion.finish
        return completion

    def reset(self) -> None:
        """Become usable again."""
        if self.fail_reset:
            raise MemoryError
        self.resets += 1
        self.poisoned = False

    def capabilities(self) -> dict[str, Any]:
        """A record with one field."""
        return {"schema_version": 1}

    def _play(
        self,
        script: Script,
        played: Played,
        cancellation: Cancellation,
        deadline: float,
        on_token: Callable[[int], bool],
        on_prefill: Callable[[int, int], None],
    ) -> Completion:
        def wait(seconds: float) -> None:
            end = time.monotonic() + seconds
            while True:
                if cancellation.cancelled and not script.deaf:
                    raise CancelledError("the request was cancelled")
                if time.monotonic() >= deadline:
                    raise DeadlineError("the request's deadline passed")
                if time.monotonic() >= end:
                    return
                time.sleep(min(0.005, seconds))

        begin = time.monotonic()
        on_prefill(len(played.prompt) // 2, len(played.prompt))
        wait(script.prefill_seconds)
        middle = time.monotonic()
        emitted: list[int] = []
        while len(emitted) < played.options.max_tokens and (
            script.endless or len(emitted) < len(script.pieces)
        ):
            wait(script.token_seconds)
            piece = script.pieces[len(emitted) % len(script.pieces)]
            played.steps += 1
            if isinstance(piece, Exception):
                self.poisoned = self.poisoned or getattr(piece, "code", "") == "poisoned"
                raise piece
            token = FIRST_PIECE + len(emitted)
            self._pieces[token] = piece
            emitted.append(token)
            if on_token(token):
                break
        ended = len(emitted) < played.options.max_tokens or not script.endless
        return Completion(
            tuple(emitted),
            "stop" if ended else "length",
            EOS,
            len(played.prompt),
            3,
            middle - begin,
            time.monotonic() - middle,
        )

    def _busy(self, seconds: float) -> None:
        """Hold Python's lock in slices, as pure Python work does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            sum(range(1000))
