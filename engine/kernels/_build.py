"""Builds the native kernels, or leaves them out: without a usable compiler the install still succeeds.

Run by setuptools, which loads this file alone; it imports nothing of the project.
"""

from __future__ import annotations

import sys

from setuptools import Extension
from setuptools.command.build_ext import build_ext

# One rounding an operation: no fused multiply-add, no fast-math. Nobody reads errno or the exception flags;
# keeping them would hinder vector square roots and comparisons.
GNU_FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
MSVC_FLAGS = ["/O2", "/fp:precise"]


class BuildKernels(build_ext):
    """`build_ext` with the flags of the compiler in use and NumPy's headers."""

    def build_extension(self, ext: Extension) -> None:
        """Build one extension with the flags that keep the arithmetic exact."""
        import numpy

        ext.include_dirs = [*ext.include_dirs, numpy.get_include()]
        msvc = self.compiler.compiler_type == "msvc"
        ext.extra_compile_args = MSVC_FLAGS if msvc else GNU_FLAGS
        if not msvc and sys.platform != "win32":
            ext.extra_link_args = ["-pthread"]
        super().build_extension(ext)
