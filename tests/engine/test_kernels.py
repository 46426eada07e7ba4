from __future__ import annotations

import pytest

import engine.kernels
from engine.errors import InvalidInputError
from engine.kernels import FAILED_LEVELS, choose_kernels, kernel_name


def test_no_level_of_this_processor_fails_its_trial() -> None:
    """A level whose instructions the machine has gives the right bytes."""
    assert FAILED_LEVELS == ()


def test_a_level_that_failed_is_named_and_not_offered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Choosing kernels warns of it, and asking for it is refused with the reason."""
    monkeypatch.setattr(engine.kernels, "FAILED_LEVELS", ("amx",))
    monkeypatch.setattr(engine.kernels, "KERNEL_NAMES", ("numpy", "portable"))
    assert choose_kernels("numpy", 1, 16).name == "numpy"
    assert [record.getMessage() for record in caplog.records] == [
        "kernel amx gives wrong results on this processor and is not used"
    ]
    with pytest.raises(
        InvalidInputError, match=r"^kernel 'amx' has failed its trial here; available: numpy, portable"
    ):
        kernel_name("amx")


def test_a_kernel_that_is_not_there_is_refused() -> None:
    """With the names to choose from."""
    with pytest.raises(InvalidInputError, match=r"^kernel 'mmx' is not available here; available: numpy"):
        kernel_name("mmx")
