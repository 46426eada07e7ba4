"""The memory that the process held at its peak, against the model file and the state of a full context."""

from __future__ import annotations

import argparse

from benchmarks.decode import fill
from benchmarks.machine import peak_memory_bytes
from benchmarks.results import add_result_options, finish, new_result
from benchmarks.subject import (
    add_engine_options,
    add_subject_options,
    count,
    engine_options,
    open_subject,
    token_ids,
)
from benchmarks.targets import MEMORY_BYTES, Target
from engine.decoder import Step
from engine.huge_pages import huge_page_bytes

DESCRIPTION = """\
Memory: load a model, fill a context of --context tokens in large blocks, decode a few more, and say what the
process held at its peak. The model file and the state are what nothing can do without; the rest is Python,
NumPy, the header's tables and the intermediate arrays of a block.

  python -m benchmarks memory --model 27b --type PQ2_0 --context 1024
"""
STEPS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_subject_options(parser)
    add_engine_options(parser)
    parser.add_argument("--context", type=count, default=1024, help="tokens of the sequence (1024)")
    add_result_options(parser)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    subject, engine = open_subject(options), engine_options(options)
    context = options.context
    decoder = engine.load(subject, context + STEPS).decoder
    after_load = peak_memory_bytes()
    state = decoder.new_state()
    ids = token_ids(subject, context + STEPS)
    fill(decoder, state, ids[:context])
    for token in ids[context:]:
        decoder.evaluate([Step(state, [token])])
    values = {
        "after_load_bytes": after_load,
        "peak_bytes": peak_memory_bytes(),
        "state_bytes": decoder.state_bytes,
        "huge_page_bytes": huge_page_bytes(),
    }
    file_bytes = subject.manifest.pin.nbytes
    lines = [("model", f"{file_bytes / 1e6:.1f} MB"), ("state", f"{decoder.state_bytes / 1e6:.1f} MB")]
    targets = []
    if values["peak_bytes"] is None or after_load is None:
        lines.append(("peak", "not known on this system"))
    else:
        rest = values["peak_bytes"] - file_bytes - decoder.state_bytes
        lines.append(("loaded", f"{after_load / 1e6:.1f} MB at the peak until the model was loaded"))
        lines.append(("peak", f"{values['peak_bytes'] / 1e6:.1f} MB in all, {rest / 1e6:.1f} MB beside both"))
        targets.append(Target("bytes beside model and state", MEMORY_BYTES, rest, at_most=True))
    result = new_result("memory", subject, engine, {"context": context}, values, {})
    finish(result, lines, targets, options.save)
