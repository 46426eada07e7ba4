"""Numerical kernels behind one small interface: NumPy is the meaning, native code must equal it by bits.

A backend knows matrices, activations and memories of one layer; it knows nothing of graphs or files. The
native levels are there if the package was built with a compiler and the processor can run them.
"""

from __future__ import annotations

import logging
import os

from engine.errors import InvalidInputError
from engine.kernels.numpy_kernels import NumpyKernels, default_threads

try:
    from engine.kernels import native_kernels as _native_kernels
except ImportError:  # built without a compiler
    NATIVE_LEVELS: tuple[str, ...] = ()
    BUILT_LEVELS: tuple[str, ...] = ()
    FAILED_LEVELS: tuple[str, ...] = ()
    highest_ids = None
else:
    NATIVE_LEVELS, BUILT_LEVELS = _native_kernels.LEVELS, _native_kernels.BUILT_LEVELS
    FAILED_LEVELS = _native_kernels.FAILED_LEVELS  # this processor has them, and computes wrong with them
    highest_ids = _native_kernels.highest_ids

Kernels = NumpyKernels

KERNEL_NAMES = ("numpy", *NATIVE_LEVELS)
KERNEL_VARIABLE = "PRISM_KERNEL"

_logger = logging.getLogger(__name__)

__all__ = [
    "KERNEL_NAMES",
    "Kernels",
    "NumpyKernels",
    "choose_kernels",
    "default_threads",
    "highest_ids",
    "kernel_name",
]


def kernel_name(name: str | None = None) -> str:
    """The backend to use: `name`, else the environment's PRISM_KERNEL, else the best that runs here.

    Raises InvalidInputError for one that this build or processor does not have.
    """
    chosen = name if name is not None else os.environ.get(KERNEL_VARIABLE) or KERNEL_NAMES[-1]
    if chosen not in KERNEL_NAMES:
        why = "has failed its trial" if chosen in FAILED_LEVELS else "is not available"
        raise InvalidInputError(
            f"kernel {chosen!r} {why} here; available: {', '.join(KERNEL_NAMES)}", "kernel"
        )
    return chosen


def choose_kernels(name: str | None, threads: int, activation_bits: int, expansion_bytes: int = 0) -> Kernels:
    """The backend that `kernel_name(name)` names; see `NumpyKernels` for the other arguments.

    Logs a warning for each level that this processor should run and that failed its trial.
    """
    chosen = kernel_name(name)
    for failed in FAILED_LEVELS:
        _logger.warning("kernel %s gives wrong results on this processor and is not used", failed)
    if chosen == "numpy":
        return NumpyKernels(threads, activation_bits, expansion_bytes)
    return _native_kernels.NativeKernels(threads, activation_bits, expansion_bytes, chosen)
