"""Times every call that a graph makes into its kernels, without the kernels or the graph knowing.

With native kernels the calls into compiled code are timed, so that the Python around them counts as Python;
with NumPy the operations themselves. Multiplications are told apart by the shapes of their matrices.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

from engine.kernels import Kernels

# Methods that no evaluation calls, or that only name things.
UNTIMED = frozenset({"matrix", "form", "pack", "read"})
_TRIALS, _TRIAL_CALLS = 20, 1000


class Stopwatch:
    """Seconds and calls by operation; `attach` makes it see the calls of a loaded model's kernels."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: defaultdict[str, int] = defaultdict(int)
        self._inside = False

    def attach(self, kernels: Kernels) -> None:
        """Put timers around the operations of `kernels`, for good."""
        backend = getattr(kernels, "_native", None)
        if backend is not None:
            vars(kernels)["_native"] = _Timed(backend, self)
            return
        for name in dir(kernels):
            if not name.startswith("_") and name not in UNTIMED and callable(getattr(kernels, name)):
                vars(kernels)[name] = self.timed(name, getattr(kernels, name))

    def timed(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        """The operation with its time added up here; calls from inside another one are part of that."""

        @wraps(operation)
        def call(*arguments: Any) -> Any:
            if self._inside:
                return operation(*arguments)
            self._inside = True
            started = time.perf_counter()
            try:
                return operation(*arguments)
            finally:
                elapsed = time.perf_counter() - started
                self._inside = False
                label = name + _shapes(arguments[0])
                self.seconds[label] += elapsed
                self.calls[label] += 1

        return call

    def seconds_of_timing(self) -> float:
        """What timing all the calls so far has itself taken, by what timing nothing takes."""

        def nothing(_: object) -> None:
            pass

        timed = Stopwatch().timed("nothing", nothing)
        best = math.inf
        for _ in range(_TRIALS):
            started = time.perf_counter()
            for _ in range(_TRIAL_CALLS):
                timed(None)
            best = min(best, (time.perf_counter() - started) / _TRIAL_CALLS)
        return best * sum(self.calls.values())

    def clear(self) -> None:
        """Forget what was timed so far."""
        self.seconds.clear()
        self.calls.clear()


class _Timed:
    """Stands in for a compiled backend, whose methods cannot be replaced."""

    def __init__(self, backend: Any, watch: Stopwatch) -> None:
        self._backend, self._watch = backend, watch

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if not callable(found):
            return found
        method = found if name in UNTIMED else self._watch.timed(name, found)
        self.__dict__[name] = method  # found at once from now on
        return method


def _shapes(first: Any) -> str:
    """` 2048→2048+1024+1024` for a multiplication by these matrices, nothing for any other operation."""
    matrices = first if isinstance(first, list | tuple) else [first]
    if not matrices or not all(hasattr(matrix, "select") for matrix in matrices):
        return ""
    return f" {matrices[0].inputs}→{'+'.join(str(matrix.rows) for matrix in matrices)}"
