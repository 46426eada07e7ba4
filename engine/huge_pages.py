"""How much of this process's memory the system put on huge pages.

Weights are asked to be there (see `artifact`); whether they are is the system's choice and changes how fast
one core can read them, so it is reported.
"""

from __future__ import annotations

from pathlib import Path

MAPS = Path("/proc/self/smaps_rollup")


def huge_page_bytes() -> int | None:
    """Bytes of private memory on huge pages; None where the system does not tell."""
    try:
        lines = MAPS.read_text("ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        name, _, amount = line.partition(":")
        if name == "AnonHugePages":
            return int(amount.split()[0]) * 1024
    return None
