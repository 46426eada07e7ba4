"""The exit codes of `prism-inference-server`, in one table, so that an owner can tell why it ended.

Codes that the driver `prism-inference` has too mean the same there.
"""

from __future__ import annotations

from enum import IntEnum

from engine.errors import (
    ArtifactError,
    BudgetError,
    EngineError,
    EngineFaultError,
    HashMismatchError,
    InvalidInputError,
    LengthMismatchError,
)


class ExitCode(IntEnum):
    """Why the process ended."""

    CLEAN = 0  # asked to stop; everything admitted was finished or told in time
    UNEXPECTED = 1  # a mistake in this program
    USAGE = 2  # an option or the manifest is wrong, or the context does not fit the model
    BUDGET = 3  # model, state or checkpoint need more memory than they may have
    IDENTITY = 4  # the model file is not there, or is not the pinned one
    MODEL = 5  # the verified file is not a model that this engine runs
    OUTPUT = 6  # the ready record cannot be written
    ENGINE_FAULT = 7  # the engine failed for good while serving
    DEADLINE = 8  # asked to stop; a running answer had to be cut off
    KEY = 9  # there is no usable key
    LISTEN = 10  # the address or port cannot be had


def for_load_error(error: EngineError) -> ExitCode:
    """The exit code for a model that could not be loaded."""
    if isinstance(error, InvalidInputError):
        return ExitCode.USAGE
    if isinstance(error, BudgetError):
        return ExitCode.BUDGET
    if isinstance(error, EngineFaultError):
        return ExitCode.ENGINE_FAULT
    if isinstance(error, (LengthMismatchError, HashMismatchError)) or type(error) is ArtifactError:
        return ExitCode.IDENTITY
    return ExitCode.MODEL
