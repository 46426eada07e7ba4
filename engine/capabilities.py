"""What this build can compute, as one bounded record, without touching a model or a device.

The record says which implementation contracts exist; it does not qualify a model or a machine. Readers
must refuse a `schema_version` that they do not know.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from typing import Any

from engine.kernels import BUILT_LEVELS, FAILED_LEVELS, KERNEL_NAMES, kernel_name
from engine.model import CONTRACT, GRAPHS

SCHEMA_VERSION = 1
PACKAGE = "prism-inference"
UNINSTALLED = "0+source"  # run from a source tree that was never installed

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "win32": "x86", "i686": "x86"}
SYSTEMS = {"win32": "windows", "darwin": "macos"}


def capabilities() -> dict[str, Any]:
    """The record, ready for JSON; its fields are described in `docs/driver.md`.

    Raises `InvalidInputError` if the environment names a kernel that is not there.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "prism-inference-capabilities",
        "runtime": {"name": PACKAGE, "version": package_version(), "target": _target()},
        "cpu": {"scalar": True, "neon_build_eligible": "neon" in BUILT_LEVELS},
        "backends": {
            "cpu": {"available": True},
            "vulkan": {"available": False},
            "hexagon": {"available": False},
        },
        "supported_contracts": [f"{graph}:{CONTRACT}/{bits}" for graph in GRAPHS for bits in (8, 16)],
        "qualification": "unqualified",
        "kernels": {
            "available": list(KERNEL_NAMES),
            "default": kernel_name(),
            "built": list(BUILT_LEVELS),
            "failed": list(FAILED_LEVELS),
        },
    }


def package_version() -> str:
    """The version of the installed package."""
    try:
        return installed_version(PACKAGE)
    except PackageNotFoundError:
        return UNINSTALLED


def _target() -> dict[str, str]:
    """What the interpreter was built for, which an emulator does not change."""
    machine = sysconfig.get_platform().rsplit("-", 1)[-1].lower()
    if machine in ("universal2", "intel"):
        machine = platform.machine().lower()
    triple = str(sysconfig.get_config_var("HOST_GNU_TYPE") or "")
    environment = "msvc" if "MSC" in sys.version else "musl" if "musl" in triple else "gnu"
    return {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": SYSTEMS.get(sys.platform, sys.platform),
        "environment": "" if sys.platform == "darwin" else environment,
    }
