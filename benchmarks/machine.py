"""Facts about the machine and this process that a figure means nothing without.

What the system does not tell is None. It measures nothing; `bandwidth` and `other_load` do.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from engine.kernels import KERNEL_NAMES, default_threads
from engine.memory_budget import machine_bytes

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CPU_FACTS = Path("/proc/cpuinfo")
FEATURES = ("avx2", "avx_vnni", "avx512bw", "avx512_vnni", "amx_int8", "asimddp", "i8mm")


def machine_facts() -> dict[str, Any]:
    """What every result carries."""
    cpu = _read(CPU_FACTS)
    model = re.search(r"^model name\s*: (.*)$", cpu, re.MULTILINE)
    flags = set((re.findall(r"^(?:flags|Features)\s*: (.*)$", cpu, re.MULTILINE) or [""])[0].split())
    return {
        "cpu": (model[1].strip() if model else platform.processor()) or platform.machine(),
        "features": [name for name in FEATURES if name in flags],
        "processors": default_threads(),
        "memory_bytes": machine_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "huge_pages": _huge_pages(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "kernels": list(KERNEL_NAMES),
    }


def peak_memory_bytes() -> int | None:
    """The most memory that this process ever held at once."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _huge_pages() -> str | None:
    """The system's policy: always, madvise or never."""
    chosen = re.search(r"\[(\w+)\]", _read(HUGE_PAGES))
    return chosen[1] if chosen else None


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace") if os.name == "posix" else ""
    except OSError:
        return ""
