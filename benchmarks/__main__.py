"""The measurements as commands; each one explains itself with --help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import decode, first_token, load, memory, prefill, profile, report, write
from benchmarks.errors import BenchmarkError
from engine.errors import EngineError

COMMANDS = {
    "decode": (decode, "tokens a second, one after another, and the share of the memory's speed"),
    "prefill": (prefill, "tokens a second of a prompt, in blocks"),
    "load": (load, "seconds to load a model, against those to hash it"),
    "first-token": (first_token, "time to the first token, and between tokens, through HTTP"),
    "memory": (memory, "memory at the peak, against model and state"),
    "profile": (profile, "where the time of a step goes, by operation"),
    "write": (write, "write the model files and measure nothing"),
    "report": (report, "make tables and a chart of saved results"),
}
DESCRIPTION = """\
Measurements of the engine on this machine, to be run by hand while it is quiet: every result says how much of
the processors others used. Models have the shapes of real ones and random weights; they are written once.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (of this process's command line, if None); return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
    options = parser.parse_args(arguments)
    try:
        COMMANDS[options.command][0].run(options)
    except (BenchmarkError, EngineError, OSError) as error:
        print(f"{options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
