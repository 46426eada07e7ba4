"""`--mode score`: how likely the model finds given token ids.

One record a position with the log-probability (natural logarithm, in float64) of the id that follows and
the likeliest ids, then one record with the perplexity. All logits can be saved as they are.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.decoder import Step
from engine.driver.inputs import Prompt
from engine.driver.loading import describe_model, load
from engine.driver.options import Options
from engine.driver.output import write_record
from engine.driver.progress import ProgressBar
from engine.driver.whole_file import whole_file
from engine.errors import ContextError, EngineFaultError, InvalidInputError
from engine.model import Model

BEST = 5
LARGEST_EXPONENT = 700.0  # of e, in a float64

Rows = NDArray[np.float32]


def score(options: Options, prompt: Prompt) -> None:
    """Load the model, evaluate all ids in one sequence, and write all records."""
    with ExitStack() as stack:
        save = None if options.save_logits is None else _saver(stack, options.save_logits)
        started = time.monotonic()
        model = load(options)
        tokens = prompt.encode(model.tokenizer, model.chat)
        _check(tokens, model)
        loaded = time.monotonic()
        found: list[float] = []
        for position, rows in _evaluate(tokens, model, options.prefill_block_tokens):
            if save is not None:
                save(rows, len(tokens))
            for index, row in enumerate(rows, position):
                record = _position(tokens, index, row)
                if record["next"] is not None:
                    found.append(record["log_probability"])
                write_record(record)
        timings = {"load_seconds": loaded - started, "evaluation_seconds": time.monotonic() - loaded}
        write_record(_summary(options, prompt, model, found) | {"timings": timings})


def _check(tokens: list[int], model: Model) -> None:
    if not tokens:
        raise InvalidInputError("the input has no tokens", "prompt")
    if len(tokens) > model.decoder.context:
        raise ContextError(len(tokens), 0, model.decoder.context)


def _evaluate(tokens: list[int], model: Model, block: int) -> Iterator[tuple[int, Rows]]:
    """The first position and the logits [positions, vocabulary] of each block."""
    state = model.decoder.new_state()
    with ProgressBar("scoring", wanted=not sys.stdout.isatty()) as bar:
        for start in range(0, len(tokens), block):
            part = tokens[start : start + block]
            rows = model.decoder.evaluate([Step(state, part, "all")])[0]
            if not np.isfinite(rows).all():
                raise EngineFaultError("the model computed logits that are not finite")
            yield start, rows
            bar(start + len(part), len(tokens))


def _position(tokens: list[int], index: int, row: Rows) -> dict[str, Any]:
    logits = row.astype(np.float64)
    shifted = logits - logits.max()
    log_probabilities = shifted - math.log(np.exp(shifted).sum())
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    # Highest first, equal ones by id, as the greedy sampler would choose.
    best = np.argsort(-row, kind="stable")[:BEST]
    return {
        "type": "position",
        "position": index,
        "token": tokens[index],
        "next": following,
        "log_probability": None if following is None else float(log_probabilities[following]),
        "best": [{"token": int(token), "log_probability": float(log_probabilities[token])} for token in best],
    }


def _summary(options: Options, prompt: Prompt, model: Model, found: list[float]) -> dict[str, Any]:
    """The closing record; `found` has the log-probability of every id but the first."""
    mean = -math.fsum(found) / len(found) if found else None
    shape = [len(found) + 1, model.decoder.vocabulary_size]
    return {
        "type": "score",
        "positions": len(found) + 1,
        "scored": len(found),
        "mean_negative_log_likelihood": mean,
        "perplexity": math.exp(mean) if mean is not None and mean < LARGEST_EXPONENT else None,
        "context": model.decoder.context,
        "prefill_block_tokens": options.prefill_block_tokens,
        "saved_logits": {"dtype": "float32", "shape": shape} if options.save_logits else None,
        **prompt.describe(),
        "model": describe_model(model),
    }


def _saver(stack: ExitStack, path: Path) -> Callable[[Rows, int], None]:
    """A function that appends logits; the file appears whole when `stack` closes, or not at all."""
    file = stack.enter_context(whole_file(path, "--save-logits"))

    def append(rows: Rows, positions: int) -> None:
        if file.tell() == 0:
            header = {"descr": "<f4", "fortran_order": False, "shape": (positions, rows.shape[1])}
            np.lib.format.write_array_header_1_0(file, header)
        file.write(np.ascontiguousarray(rows, "<f4").tobytes())

    return append
