"""The one way of generated text: token bytes → UTF-8 → stop strings → reasoning and content → deltas.

Each stage holds back only the longest tail that can still change meaning, and the end of the output is
flushed through the same stages in the same order. What comes out, joined, does not depend on how the
output was cut into tokens. The module knows nothing of models, ids or HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.errors import InvalidInputError
from engine.text_output import Utf8Output

Kind = Literal["content", "reasoning"]
Reasoning = Literal["off", "outside", "inside"]

_OPEN = "<think>"
_CLOSE = "</think>"


class StopMatcher:
    """Ends text before the first stop string that is completed; of several at once, before the longest.

    Reads characters one by one (Knuth-Morris-Pratt for each stop string), so the result is the same for
    every way of cutting the text, in linear time.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise InvalidInputError("a stop string must not be empty", "stop")
        self.matched: str | None = None
        self._stops = sorted(set(stops), key=len, reverse=True)
        self._failures = [_failures(stop) for stop in self._stops]
        self._lengths = [0] * len(self._stops)  # characters of each stop that the text now ends with
        self._held = ""

    def push(self, text: str) -> str:
        """The text that no stop string can claim any more; nothing after a match."""
        if self.matched is not None:
            return ""
        text = self._held + text
        for end in range(len(self._held), len(text)):
            self._advance(text[end])
            if self.matched is not None:
                self._held = ""
                return text[: end + 1 - len(self.matched)]
        released = len(text) - max(self._lengths, default=0)
        self._held = text[released:]
        return text[:released]

    def finish(self) -> str:
        """What was held back; the text ended without completing a stop string."""
        rest, self._held = self._held, ""
        self._lengths = [0] * len(self._stops)
        return rest

    def _advance(self, character: str) -> None:
        for index, stop in enumerate(self._stops):
            failures, length = self._failures[index], self._lengths[index]
            while length and stop[length] != character:
                length = failures[length - 1]
            length += stop[length] == character
            if length == len(stop):
                self.matched = stop
                return
            self._lengths[index] = length


def _failures(pattern: str) -> list[int]:
    """For each prefix of `pattern`, the length of its longest proper prefix that is also its suffix."""
    failures = [0] * len(pattern)
    length = 0
    for index in range(1, len(pattern)):
        while length and pattern[length] != pattern[index]:
            length = failures[length - 1]
        length += pattern[length] == pattern[index]
        failures[index] = length
    return failures


class ReasoningSplitter:
    """Tells a leading `<think> … </think>` block from the answer after it.

    `starts_inside` says that the prompt has opened the block already. Otherwise only a tag at the very
    beginning (after white space) opens one; tags anywhere later are ordinary text. Line breaks around the
    block's text and before the answer belong to the format and are dropped.
    """

    def __init__(self, starts_inside: bool) -> None:
        self._state: Literal["start", "reasoning", "gap", "content"] = "start"
        self._starts_inside = starts_inside
        self._begun = False  # some reasoning text was given out
        self._held = ""

    def push(self, text: str) -> list[tuple[Kind, str]]:
        """The parts that are settled, in order; none is empty."""
        text, self._held = self._held + text, ""
        parts: list[tuple[Kind, str]] = []
        if self._state == "start":
            text = self._start(text)
        if self._state == "reasoning":
            reasoning, text = self._reasoning(text)
            parts.append(("reasoning", reasoning))
        if self._state == "gap":
            text = text.lstrip("\n")
            if text:
                self._state = "content"
        if self._state == "content":
            parts.append(("content", text))
        return [part for part in parts if part[1]]

    def finish(self) -> list[tuple[Kind, str]]:
        """What was held back, by the same rules; an unclosed block stays reasoning."""
        text, self._held = self._held, ""
        if self._state == "start":
            self._state = "reasoning" if self._starts_inside else "content"
        if self._state == "reasoning":
            reasoning = self._trimmed(text.rstrip("\n"))
            return [("reasoning", reasoning)] if reasoning else []
        return [("content", text)] if text else []

    def _start(self, text: str) -> str:
        """Leave the start as soon as it is clear whether a tag stands there; the text that follows."""
        stripped = text.lstrip()
        if stripped.startswith(_OPEN):
            self._state = "reasoning"
            return stripped[len(_OPEN) :]
        if _OPEN.startswith(stripped):
            self._held = text
            return ""
        self._state = "reasoning" if self._starts_inside else "content"
        return text

    def _reasoning(self, text: str) -> tuple[str, str]:
        """Reasoning that is settled, and what follows the closing tag."""
        body, tag, rest = text.partition(_CLOSE)
        if tag:
            self._state = "gap"
            return self._trimmed(body.rstrip("\n")), rest
        tail = next(size for size in range(len(_CLOSE) - 1, -1, -1) if text.endswith(_CLOSE[:size]))
        settled = text[: len(text) - tail].rstrip("\n")
        self._held = text[len(settled) :]
        return self._trimmed(settled), ""

    def _trimmed(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip("\n")
            self._begun = bool(text)
        return text


@dataclass(frozen=True)
class Delta:
    """A stretch of output text, never empty."""

    kind: Kind
    text: str


class TextPipeline:
    """All stages for one answer. `reasoning` is `inside` when the prompt leaves a think block open."""

    def __init__(self, stops: Sequence[str] = (), reasoning: Reasoning = "off") -> None:
        self._utf8 = Utf8Output()
        self._stop = StopMatcher(stops)
        self._splitter = None if reasoning == "off" else ReasoningSplitter(reasoning == "inside")

    @property
    def stopped(self) -> bool:
        """Whether a stop string was completed; nothing pushed later comes out."""
        return self._stop.matched is not None

    @property
    def stop(self) -> str | None:
        """The stop string that was completed."""
        return self._stop.matched

    def push(self, piece: bytes) -> list[Delta]:
        """The text that is settled with these bytes."""
        return self._split(self._stop.push(self._utf8.push(piece)))

    def finish(self) -> list[Delta]:
        """The text that was still held back, through the same stages."""
        deltas = self._split(self._stop.push(self._utf8.finish()) + self._stop.finish())
        if self._splitter is not None:
            deltas += [Delta(kind, text) for kind, text in self._splitter.finish()]
        return deltas

    def _split(self, text: str) -> list[Delta]:
        if self._splitter is None:
            return [Delta("content", text)] if text else []
        return [Delta(kind, part) for kind, part in self._splitter.push(text)]
