"""A progress bar on standard error, shown only if that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

WIDTH = 30
SECONDS_BETWEEN = 0.1


class ProgressBar:
    """`bar(done, total)` draws; leaving the `with` block wipes the line."""

    def __init__(self, label: str, *, wanted: bool = True) -> None:
        self._label = label
        self._shown = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._drawn = 0  # characters on the line
        self._last = 0.0

    def __call__(self, done: int, total: int) -> None:
        """Draw, at most ten times a second and once at the end."""
        now = time.monotonic()
        if not self._shown or (done < total and now - self._last < SECONDS_BETWEEN):
            return
        self._last = now
        filled = WIDTH * done // total
        line = f"{self._label} [{'#' * filled}{'.' * (WIDTH - filled)}] {100 * done // total:3} %"
        self._drawn = len(line)
        print(f"\r{line}", end="", file=sys.stderr, flush=True)

    def wipe(self) -> None:
        """Leave an empty line for other output."""
        if self._drawn:
            print(f"\r{' ' * self._drawn}\r", end="", file=sys.stderr, flush=True)
            self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wipe()
