"""A thing to fuzz: cases out of hypothesis, and a property that every case must have.

A property is checked against a model of its own, written for the test, and raises where they differ. The
same targets run in the suite (some hundred cases), in `python -m tests.fuzz` (as many as asked for), and
under atheris, which searches by coverage.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

QUIET = list(HealthCheck)  # big or slow cases are meant
TRACED_ROUNDS = 10  # one in so many: it is slow, and each start of tracemalloc keeps some memory for good


@dataclass(frozen=True)
class Target:
    """`check` raises for a case of `cases` that lacks the property; `traced` if it asks tracemalloc."""

    name: str
    cases: SearchStrategy[Any]
    check: Callable[[Any], None]
    traced: bool = False

    def run(self, count: int, number: int, check: Callable[[Any], None] | None = None) -> None:
        """About `count` cases, the same ones for the same `number`; a failing one is made small and raised.

        `check` may stand in for the target's own, to watch it.
        """
        phases = (Phase.generate, Phase.shrink)
        limits = settings(
            max_examples=count, database=None, deadline=None, suppress_health_check=QUIET, phases=phases
        )
        test = seed(number)(limits(given(self.cases)(check or self.check)))
        if self.traced and number % TRACED_ROUNDS == 0:
            tracemalloc.start()
        try:
            test()
        finally:
            tracemalloc.stop()
