from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks import other_load
from benchmarks.other_load import OtherLoad

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")

TICKS = os.sysconf("SC_CLK_TCK") if sys.platform == "linux" else 100
LINE = "cpu  {user} 10 20 5000 60 3 4 {steal} 900 900\ncpu0 1 2 3\n"


def test_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system was busy with and we were not, a second of it, counts, and stolen time with it."""
    system, clock = tmp_path / "stat", [100.0]
    monkeypatch.setattr(other_load, "SYSTEM", system)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "process_time", lambda: 5.0 if clock[0] > 100 else 2.0)
    system.write_text(LINE.format(user=1000, steal=0))
    load = OtherLoad()
    clock[0] = 110.0
    system.write_text(LINE.format(user=1000 + 7 * TICKS, steal=TICKS))
    found = load.processors()
    assert found == pytest.approx((7 + 1 - 3) / 10)


def test_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the system does not tell, the answer is None."""
    monkeypatch.setattr(other_load, "SYSTEM", tmp_path / "absent")
    assert OtherLoad().processors() is None


def test_own_processes() -> None:
    """The seconds of a running process are those that the system has for it."""
    assert other_load._process_seconds(os.getpid()) == pytest.approx(sum(os.times()[:2]), abs=0.5)
    assert other_load._process_seconds(2**30) == 0
