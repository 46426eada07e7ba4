from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.paths import ROOT
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_short_run(target: Target) -> None:
    """Some hundred cases, always the same ones, have the target's property."""
    target.run(400, number=0)


def test_long_run_counts_its_cases() -> None:
    """The command runs as many cases as asked for, a target a line, and refuses a target that is none."""
    command = [sys.executable, "-m", "tests.fuzz"]
    done = subprocess.run([*command, "utf8", "--cases", "120"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("utf8: 120 cases, ")
    refused = subprocess.run([*command, "utf9"], cwd=ROOT, capture_output=True, text=True)
    assert (refused.returncode, "there is no target utf9" in refused.stderr) == (2, True)
