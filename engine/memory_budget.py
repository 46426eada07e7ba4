"""How much memory a model may take when the user states no budget.

The rule: half of the memory that the machine (or the container's limit) has, and never less than the
model file itself, without which nothing runs. What the file leaves is used to keep expanded weights.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
UNKNOWN_MACHINE_BYTES = 4 * 1024**3  # assumed where the system does not tell


def default_memory_bytes(model_bytes: int) -> int:
    """The budget in bytes for a model file of `model_bytes`."""
    return max(model_bytes, machine_bytes() // 2)


def machine_bytes() -> int:
    """Bytes of memory that this process could ever have."""
    known = _physical_bytes() or UNKNOWN_MACHINE_BYTES
    try:
        return min(known, int(CGROUP_LIMIT.read_text("ascii")))
    except (OSError, ValueError):  # no such limit, or the word "max"
        return known


def _physical_bytes() -> int | None:
    if sys.platform == "win32":
        return _windows_bytes()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


if sys.platform == "win32":
    import ctypes

    class _MemoryStatus(ctypes.Structure):
        """The system's MEMORYSTATUSEX."""

        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("physical", ctypes.c_uint64),
            ("others", ctypes.c_uint64 * 6),
        )

    def _windows_bytes() -> int | None:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.physical) if known else None
