"""`self-test`: has every kernel of this machine, or the one that is named, repeat a known answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.driver.option_table import OPTIONS, Parser
from engine.driver.output import write_record
from engine.kernels import KERNEL_NAMES, kernel_name
from engine.model import DEFAULT_ACTIVATION_BITS
from engine.self_test import check_kernel


def self_test(arguments: Sequence[str]) -> None:
    """Write a record for each kernel that agrees; raises `EngineFaultError` for the first that does not."""
    parser = Parser(
        prog="prism-inference self-test",
        description="Compute a known answer with every kernel and compare it with the recorded one by bits.",
        allow_abbrev=False,
    )
    parser.add_options({"engine": OPTIONS["engine"]})
    given = parser.parse_strictly(arguments)
    bits = int(given.activation_bits or DEFAULT_ACTIVATION_BITS)
    for name in KERNEL_NAMES if given.kernel is None else (kernel_name(given.kernel),):
        started = time.monotonic()
        check_kernel(name, given.threads, bits)
        write_record(
            {
                "type": "self-test",
                "kernel": name,
                "activation_bits": bits,
                "agrees": True,
                "seconds": time.monotonic() - started,
            }
        )
