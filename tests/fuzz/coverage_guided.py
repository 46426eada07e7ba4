"""One target under atheris, which changes inputs so that they reach new lines of the engine.

`python -m tests.fuzz.coverage_guided TARGET CASES`; needs the package `atheris`, which is no dependency.
"""

from __future__ import annotations

import sys
import tracemalloc
from importlib import import_module
from typing import Any

from hypothesis import given, settings

from deploy.paths import ROOT
from tests.fuzz.target import Target

MAX_BYTES = 4096
SECONDS_A_CASE = 120  # by the clock, on a machine that may be busy
MEMORY_MB = 1024


def main(name: str, cases: str) -> None:
    """Does not return: the search ends the process, with a code other than 0 if a case failed."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["engine"]):
        targets = import_module("tests.fuzz.targets").TARGETS
    target: Target = targets[name]
    if target.traced:
        tracemalloc.start()
    test: Any = settings(database=None, deadline=None)(given(target.cases)(target.check))
    limits = [f"-runs={cases}", f"-max_len={MAX_BYTES}", f"-timeout={SECONDS_A_CASE}"]
    limits += [f"-rss_limit_mb={MEMORY_MB}", "-len_control=0", "-seed=1"]
    limits += [f"-artifact_prefix={ROOT / '.hypothesis' / name}-"]  # where a failing input is kept
    limits += ["-verbosity=0", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *limits], test.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
