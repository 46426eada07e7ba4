"""The exit codes of `prism-inference`, in one table. Codes that the server has too mean the same there."""

from __future__ import annotations

from enum import IntEnum

from engine import errors


class ExitCode(IntEnum):
    """Why the command ended."""

    SUCCESS = 0
    UNEXPECTED = 1  # a mistake in this program
    USAGE = 2  # an option, a manifest or the input is wrong, or does not fit the context
    BUDGET = 3  # something needs more memory than it may have
    IDENTITY = 4  # the model file is not there, or is not the pinned one
    MODEL = 5  # the verified file is not a model that this engine runs
    OUTPUT = 6  # the output cannot be written
    ENGINE_FAULT = 7  # the computation failed
    DEADLINE = 8  # the time that was allowed is over
    DIFFERS = 11  # a replay gave something else than its receipt says
    INTERRUPTED = 130  # Ctrl-C


# The first class that an error is an instance of counts.
EXIT_CODES: tuple[tuple[type[errors.EngineError], ExitCode], ...] = (
    (errors.InvalidInputError, ExitCode.USAGE),
    (errors.ContextError, ExitCode.USAGE),
    (errors.BudgetError, ExitCode.BUDGET),
    (errors.LengthMismatchError, ExitCode.IDENTITY),
    (errors.HashMismatchError, ExitCode.IDENTITY),
    (errors.DeadlineError, ExitCode.DEADLINE),
    (errors.CancelledError, ExitCode.INTERRUPTED),
    (errors.EngineFaultError, ExitCode.ENGINE_FAULT),
    (errors.UnsupportedTemplateError, ExitCode.MODEL),
)


def exit_code(error: errors.EngineError) -> ExitCode:
    """The code for an error of the engine."""
    if type(error) is errors.ArtifactError:  # the file itself; its subclasses are about what is in it
        return ExitCode.IDENTITY
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
    return ExitCode.MODEL if isinstance(error, errors.ArtifactError) else ExitCode.UNEXPECTED
