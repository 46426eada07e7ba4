"""Makes the project's own environment in `.venv` and installs the project there, editable.

A second call does nothing unless something changed: a stamp in the environment names the sources of the
build, the folder, the interpreter and the extras that the installation was made for. Only the standard
library is used, since nothing is installed yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deploy.errors import SetupError
from deploy.paths import ENVIRONMENT, ROOT

STAMP = ENVIRONMENT / "installed.json"

_VERSION = "import sys; print(*sys.version_info[:3], sep='.')"


def environment_python(environment: Path = ENVIRONMENT) -> Path:
    """The interpreter of a virtual environment."""
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def ensure_environment(extras: Iterable[str] = ()) -> Path:
    """Make or complete the environment so that it has the project and `extras`; return its interpreter."""
    python = environment_python()
    version = _version(python)
    if version is None:
        print(f"Making {ENVIRONMENT.name} with Python {sys.version.split()[0]} ...", flush=True)
        _make()
        version = _version(python)
    stamp = {"sources": _digest(), "folder": str(ROOT), "python": version}
    installed = _read_stamp()
    present = set(installed.pop("extras", ())) if installed else set()
    if installed == stamp and present >= set(extras):
        return python
    wanted = sorted(present | set(extras))
    print(f"Installing the project{_listed(wanted)} ...", flush=True)
    target = f"{ROOT}[{','.join(wanted)}]" if wanted else str(ROOT)
    command: list[str | Path] = [python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    command += ["--editable", target]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SetupError("pip could not install the project; its own message is above")
    STAMP.write_text(json.dumps({**stamp, "extras": wanted}, indent=1) + "\n", encoding="utf-8")
    return python


def _make() -> None:
    """A new environment, in the place of one whose interpreter does not run (any more)."""
    command = [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)]
    if subprocess.run(command, check=False).returncode or _version(environment_python()) is None:
        raise SetupError(
            "the environment could not be made; if Python's own message above names ensurepip, install the "
            "system's package for virtual environments (Debian and Ubuntu: apt install python3-venv)"
        )


def _version(python: Path) -> str | None:
    """The version of an environment's interpreter, None if it does not run or has no pip."""
    try:
        result = subprocess.run(
            [python, "-I", "-c", f"import pip; {_VERSION}"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _digest() -> str:
    """One hash over all that an editable installation is made from; the Python modules are used in place."""
    kernels = ROOT / "engine" / "kernels"
    sources = [ROOT / "pyproject.toml", kernels / "_build.py", kernels / "_native.pyx"]
    sources += sorted((kernels / "native").iterdir())
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def _read_stamp() -> dict[str, Any]:
    """What the last installation was for; empty if there was none, or its record is damaged."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _listed(extras: list[str]) -> str:
    return f" with {' and '.join(extras)} tools" if extras else ""
