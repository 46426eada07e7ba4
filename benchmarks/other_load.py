"""How much of the machine other processes used while something was measured.

On a shared machine a figure is only worth as much as the machine was quiet. Linux tells, in ticks of all
processors since boot; elsewhere the answer is None. Time that a hypervisor took away counts as others'.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

SYSTEM = Path("/proc/stat")
# Of user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice; user and nice hold the guests.
BUSY_FIELDS = (0, 1, 2, 5, 6, 7)


class OtherLoad:
    """Started when made. Children count as ours once they have ended, `children` while they run."""

    def __init__(self, children: Sequence[int] = ()) -> None:
        self._children = children
        self._started = time.monotonic()
        self._busy, self._own = self._seconds()

    def processors(self) -> float | None:
        """Processors that others kept busy on average since the start."""
        elapsed = time.monotonic() - self._started
        busy, own = self._seconds()
        if busy is None or self._busy is None or elapsed <= 0:
            return None
        return max(0.0, (busy - self._busy) - (own - self._own)) / elapsed

    def _seconds(self) -> tuple[float | None, float]:
        """Processor seconds of the whole system, and of this process and its children."""
        ended = os.times()
        own = time.process_time() + ended.children_user + ended.children_system
        own += sum(map(_process_seconds, self._children))
        try:
            fields = SYSTEM.read_text("ascii").split("\n", 1)[0].split()[1:]
        except OSError:
            return None, own
        return sum(int(fields[i]) for i in BUSY_FIELDS) / os.sysconf("SC_CLK_TCK"), own


def _process_seconds(process: int) -> float:
    try:
        record = Path(f"/proc/{process}/stat").read_text("ascii", errors="replace")
    except OSError:
        return 0.0
    fields = record.rpartition(")")[2].split()  # the name before it may hold anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
