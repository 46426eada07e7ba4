"""Ids in the order of their logits, without sorting a vocabulary where its best few will do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine import kernels
from engine.kernels.canon import Floats
from engine.sampling.greedy import greedy

Ids = NDArray[np.intp]


def rank(logits: Floats, count: int) -> Ids:
    """Ids of the `count` highest logits (0: all), highest first, equal ones by id.

    Raises EngineFaultError when there is nothing to rank: no finite largest value.
    """
    greedy(logits)
    if not 0 < count < logits.size:
        return _descending(logits)
    if kernels.highest_ids is not None:
        return kernels.highest_ids(np.ascontiguousarray(logits), count)
    ids = np.flatnonzero(logits >= _below_top(logits, count))
    best: Ids = ids[_descending(logits[ids])[:count]]
    return best


def _below_top(logits: Floats, count: int) -> np.float32:
    """A value that at least `count` logits reach, close to the lowest of them.

    The `count`-th largest maximum of small blocks will do, and costs one pass where a partition of a large
    vocabulary costs as much as the rest of a step.
    """
    block = 256
    whole = logits.size // block * block
    tops = logits[:whole].reshape(-1, block).max(axis=1)
    if len(tops) <= count:
        tops = logits
    return np.float32(np.partition(tops, len(tops) - count)[len(tops) - count])


def _descending(logits: Floats) -> Ids:
    """Positions from the highest to the lowest logit, equal ones in place.

    Sorts integers that hold the negated float's bits, in an order of integers, above the position: all
    differ, so that the fastest sort will do where a stable one of floats takes four times as long.
    """
    keys = (np.float32(0) - logits).view(np.int32)  # 0 - x, not -x: both zeros become +0
    keys ^= (keys >> 31) & np.int32(0x7FFFFFFF)  # magnitudes of negative floats grow downwards
    wide = keys.astype(np.int64) << 32
    wide |= np.arange(logits.size)
    wide.sort()
    return (wide & 0xFFFFFFFF).astype(np.intp)
