"""The entry point of `prism-inference`: runs one command and turns every error into one line and a code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from engine.capabilities import capabilities
from engine.driver.exit_codes import ExitCode, exit_code
from engine.driver.generate import generate
from engine.driver.identify import identify, pin_file
from engine.driver.inputs import read_input
from engine.driver.options import parse_options
from engine.driver.output import abandon_output, write_record
from engine.driver.score import score
from engine.driver.tokenize import tokenize
from engine.errors import EngineError, InvalidInputError

MODES = {"generate": generate, "tokenize": tokenize, "score": score}
COMMANDS = {"identify": identify, "pin": pin_file}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (of this process, if None) and return its exit code."""
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except EngineError as error:
        return _failed(str(error), exit_code(error))
    except MemoryError:
        return _failed("the system has no more memory for this", ExitCode.BUDGET)
    except KeyboardInterrupt:
        return _failed("interrupted", ExitCode.INTERRUPTED)
    except OSError as error:  # inputs and the model raise errors of the engine
        abandon_output()
        return _failed(f"the output cannot be written: {error.strerror or error}", ExitCode.OUTPUT)
    except Exception as error:
        return _failed(f"internal error ({type(error).__name__}); please report it", ExitCode.UNEXPECTED)
    return ExitCode.SUCCESS


def _run(arguments: Sequence[str]) -> None:
    if "--capabilities" in arguments:
        if len(arguments) > 1:
            raise InvalidInputError("--capabilities takes no other option")
        write_record(capabilities())
    elif arguments and arguments[0] in COMMANDS:
        COMMANDS[arguments[0]](arguments[1:])
    else:
        options = parse_options(arguments)
        MODES[options.mode](options, read_input(options))


def _failed(message: str, code: ExitCode) -> int:
    line = " ".join(message.splitlines())  # a path may hold line ends
    with suppress(OSError):
        print(f"prism-inference: error: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
