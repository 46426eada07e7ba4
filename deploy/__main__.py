"""The set-up commands: `python -m deploy COMMAND`, from the project's folder, with any Python from 3.11 on.

The Makefile and the public CI call nothing else. Each command first makes what it needs, and only that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - any Python may be the first to run this
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}")

from deploy.demo import run_demo
from deploy.demo_model import ensure_model
from deploy.environment import ensure_environment
from deploy.errors import SetupError
from deploy.paths import ROOT

COMMANDS = """\
commands:
  environment   make .venv and install the project there, editable
  model         fetch the demo model into .demo and verify it
  demo          both, then a server and one streamed answer; with --once, end after the answer
  test          both, then the whole test suite; arguments go to pytest
  lint          ruff check, ruff format --check and mypy --strict
"""
LINTERS = (("ruff", "check"), ("ruff", "format", "--check"), ("mypy",))


def main() -> int:
    """Run one command; return the process's exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy",
        description="Set-up of the project on this machine.",
        epilog=COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("environment", "model", "demo", "test", "lint")
    parser.add_argument("command", choices=names, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    given = parser.parse_args()
    allowed = {"demo": ([], ["--once"]), "test": (given.arguments,)}.get(given.command, ([],))
    if given.arguments not in allowed:
        parser.error(f"{given.command} does not take {' '.join(given.arguments)}")
    try:
        return _run(given.command, given.arguments)
    except SetupError as error:
        print(f"{given.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(command: str, arguments: list[str]) -> int:
    # The linters check the types of the tests too, so they need what the tests import.
    python = ensure_environment({"test": ["test"], "lint": ["lint", "test"]}.get(command, []))
    if command == "lint":
        return max(_module(python, *linter) for linter in LINTERS)
    if command == "environment":
        return 0
    ensure_model(python)
    if command == "test":
        return _module(python, "pytest", *arguments)
    if command == "demo":
        run_demo(python, once=arguments == ["--once"])
    return 0


def _module(python: Path, *arguments: str) -> int:
    return subprocess.run([python, "-m", *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
