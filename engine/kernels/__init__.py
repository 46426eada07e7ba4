"""Numerical kernels behind one small interface; NumPy is the meaning, faster backends must equal it.

A backend knows matrices, activations and memories of one layer; it knows nothing of graphs or files.
"""

from __future__ import annotations

from engine.kernels.numpy_kernels import NumpyKernels, default_threads

Kernels = NumpyKernels

__all__ = ["Kernels", "NumpyKernels", "default_threads"]
