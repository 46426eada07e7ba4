"""The entry point of `prism-inference`: runs one command and turns every error into one line and a code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from engine.capabilities import capabilities
from engine.driver.exit_codes import ExitCode, exit_code
from engine.driver.generate import generate
from engine.driver.identify import identify, pin_file
from engine.driver.inputs import read_input
from engine.driver.options import parse_options
from engine.driver.output import abandon_output, reader_is_gone, write_error, write_record
from engine.driver.replay import replay
from engine.driver.score import score
from engine.driver.self_test import self_test
from engine.driver.tokenize import tokenize
from engine.errors import EngineError

MODES = {"generate": generate, "tokenize": tokenize, "score": score}
COMMANDS: dict[str, Callable[[Sequence[str]], ExitCode | None]] = {
    "identify": identify,
    "pin": pin_file,
    "replay": replay,
    "self-test": self_test,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (of this process, if None) and return its exit code."""
    if sys.stdout is None:  # the process was started without one
        return _failed("there is no standard output", ExitCode.OUTPUT)
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except EngineError as error:
        return _failed(str(error), exit_code(error))
    except MemoryError:
        return _failed("the system has no more memory for this", ExitCode.BUDGET)
    except KeyboardInterrupt:
        return _failed("interrupted", ExitCode.INTERRUPTED)
    except OSError as error:  # inputs and the model raise errors of the engine
        abandon_output()
        if reader_is_gone(error):  # it has what it wanted, as `head` has: nothing to complain about
            return ExitCode.OUTPUT
        return _failed(f"the output cannot be written: {error.strerror or error}", ExitCode.OUTPUT)
    except Exception as error:
        return _failed(f"internal error ({type(error).__name__}); please report it", ExitCode.UNEXPECTED)


def _run(arguments: Sequence[str]) -> ExitCode:
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](arguments[1:]) or ExitCode.SUCCESS
    if list(arguments) == ["--capabilities"]:
        write_record(capabilities())
    else:
        options = parse_options(arguments)
        MODES[options.mode](options, read_input(options))
    return ExitCode.SUCCESS


def _failed(message: str, code: ExitCode) -> int:
    write_error(f"prism-inference: error: {message}")
    return code


if __name__ == "__main__":
    sys.exit(main())
