from __future__ import annotations

import numpy as np
import pytest

from engine.errors import EngineFaultError, InvalidInputError
from engine.kernels import KERNEL_NAMES, canon
from engine.kernels.canon import Floats
from engine.kernels.numpy_kernels import NumpyKernels
from engine.self_test import check_kernel


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_every_kernel_agrees(kernel: str, bits: int) -> None:
    """The answers recorded elsewhere come out on this machine, with other threads than there."""
    assert check_kernel(kernel, 3, bits) == kernel


def test_the_best_kernel_is_tested_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a model is loaded."""
    monkeypatch.delenv("PRISM_KERNEL", raising=False)
    assert check_kernel(None, 1, 16) == KERNEL_NAMES[-1]


def test_the_last_bit_of_one_operation_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose products are one unit in the last place too large is found out."""
    right = NumpyKernels.silu_product

    def wrong(self: NumpyKernels, gate: Floats, up: Floats) -> Floats:
        product: Floats = np.nextafter(right(self, gate, up), np.float32(np.inf))
        return product

    monkeypatch.setattr(NumpyKernels, "silu_product", wrong)
    with pytest.raises(EngineFaultError, match=r"self-test failed: kernel numpy at 16 bits differs .* in "):
        check_kernel("numpy", 1, 16)


def test_a_wrong_token_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which token differs first."""
    right = canon.delta_gates

    def forgetful(alpha: Floats, beta: Floats, weights: canon.DeltaWeights) -> tuple[Floats, Floats]:
        decay, strength = right(alpha, beta, weights)
        return np.zeros_like(decay), strength

    monkeypatch.setattr(canon, "delta_gates", forgetful)
    with pytest.raises(EngineFaultError, match=r"in token \d+; choose another kernel"):
        check_kernel("numpy", 1, 16)


def test_unknown_kernels_are_refused() -> None:
    """Before anything is computed."""
    with pytest.raises(InvalidInputError, match="kernel 'abacus' is not available"):
        check_kernel("abacus", 1, 16)
