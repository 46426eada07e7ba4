"""What the tests of the samplers share: rows of logits, and outputs of SplitMix64 that were published."""

from __future__ import annotations

import numpy as np

from engine.kernels.canon import Floats
from engine.sampling import Sampler

SEED = 1234567
# The published outputs of SplitMix64 for that seed.
OUTPUTS = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
# Their upper 32 bits as fractions: 0.3501, 0.1736, 0.5322, 0.2490, 0.8895.
DRAWS = [output // 2**32 / 2**32 for output in OUTPUTS]


def row(*logits: float) -> Floats:
    """Logits as the decoder gives them."""
    return np.array(logits, np.float32)


def drawn(sampler: Sampler, logits: Floats, count: int = 5) -> list[int]:
    """Several tokens from the same logits, which the sampler must leave as they are."""
    before = logits.tobytes()
    tokens = [sampler.sample(logits) for _ in range(count)]
    assert logits.tobytes() == before
    return tokens
