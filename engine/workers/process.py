"""What is around a worker's work: binary standard streams, one line for an error, an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from engine.driver.exit_codes import ExitCode, exit_code
from engine.driver.output import abandon_output
from engine.errors import EngineError, InvalidInputError

EXIT_CODES = """\
exit codes:
  0 the input ended, 1 internal error, 2 wrong option or oversized frame, 3 memory budget,
  4 not the pinned file, 5 not a usable model, 6 standard input or output failed, 7 engine fault,
  130 interrupted
"""


def run_worker(program: str, work: Callable[[BinaryIO, BinaryIO], None]) -> int:
    """Calls `work(input, output)` with the standard streams and returns the exit code for how it ended."""
    try:
        work(*_standard_streams())
    except EngineError as error:
        return _failed(program, str(error), exit_code(error))
    except MemoryError:
        return _failed(program, "the system has no more memory for this", ExitCode.BUDGET)
    except KeyboardInterrupt:
        return _failed(program, "interrupted", ExitCode.INTERRUPTED)
    except OSError as error:  # models and options raise errors of the engine
        abandon_output()
        if _is_broken_pipe(error):  # the client is gone, and whoever ended it knows
            return ExitCode.OUTPUT
        message = f"standard input or output failed: {error.strerror or error}"
        return _failed(program, message, ExitCode.OUTPUT)
    except Exception as error:
        return _failed(
            program, f"internal error ({type(error).__name__}); please report it", ExitCode.UNEXPECTED
        )
    return ExitCode.SUCCESS


def _standard_streams() -> tuple[BinaryIO, BinaryIO]:
    if sys.stdin is None or sys.stdout is None:  # the process was started without them
        raise InvalidInputError("a worker needs standard input and standard output")
    return sys.stdin.buffer, sys.stdout.buffer


def _is_broken_pipe(error: OSError) -> bool:
    """Windows also says "invalid argument" for a pipe without a reader."""
    return error.errno == errno.EPIPE or (sys.platform == "win32" and error.errno == errno.EINVAL)


def _failed(program: str, message: str, code: ExitCode) -> int:
    line = " ".join(message.splitlines())  # a path may hold line ends
    if sys.stderr is not None:
        with suppress(OSError):
            print(f"{program}: error: {line}", file=sys.stderr, flush=True)
    return code
