"""What the engine is meant to reach, as ratios of one run, so that a result can say whether it did.

They hold for two threads on a quiet machine; on another machine they are a comparison, not a promise.
"""

from __future__ import annotations

from dataclasses import dataclass

DECODE_SHARE = {  # of the read bandwidth, by shape and type
    ("1.7b", "PQ2_0"): 0.70,
    ("1.7b", "Q2_0"): 0.70,
    ("1.7b", "Q1_0"): 0.55,
    ("27b", "PQ2_0"): 0.80,
}
DECODE_RATIO = {  # to the peer's tokens a second, by the start of the model's name, and type
    ("1.7b", "Q1_0"): 3.0,
    ("1.7b", "Q2_0"): 15.0,
    ("27b", "Q1_0"): 3.0,
    ("27b", "Q2_0"): 15.0,
    ("SmolLM2", "Q4_1"): 0.6,
    ("SmolLM2", "Q8_0"): 0.6,
}
PREFILL_RATIO = {  # at the shape 1.7b, by the start of the kernel's name, the first that fits, and type
    "amx": {"Q1_0": 8.0, "Q2_0": 60.0},
    "avx512-vnni": {"Q1_0": 4.0, "Q2_0": 25.0},
    "avx2": {"Q1_0": 1.5, "Q2_0": 10.0},
}
LOAD_RATIO = 1.3  # of the time of sha256sum
MEMORY_BYTES = 200 * 10**6  # beside model and state
PYTHON_SHARE = {"1.7b": 0.08}  # of a decode step


@dataclass(frozen=True)
class Target:
    """A bound with what was found; `at_most` says on which side of it to be."""

    what: str
    bound: float
    found: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether it was reached."""
        return self.found <= self.bound if self.at_most else self.found >= self.bound

    def __str__(self) -> str:
        side = "at most" if self.at_most else "at least"
        verdict = "met" if self.met else "missed"
        return f"{self.what}: {self.found:.3g}, target {side} {self.bound:g}: {verdict}"


def decode_targets(model: str, kind: str, share: float, ratio: float | None) -> list[Target]:
    """The targets of a decode result; `ratio` is None without a peer."""
    targets = []
    if (model, kind) in DECODE_SHARE:
        targets.append(Target("share of bandwidth", DECODE_SHARE[model, kind], share))
    for (start, of_type), bound in DECODE_RATIO.items():
        if ratio is not None and kind == of_type and model.startswith(start):
            targets.append(Target("ratio to the peer", bound, ratio))
    return targets


def prefill_targets(model: str, kind: str, kernel: str, ratio: float | None) -> list[Target]:
    """The targets of a prefill result; `ratio` is None without a peer."""
    for start, bounds in PREFILL_RATIO.items():
        if kernel.startswith(start) and model == "1.7b" and kind in bounds and ratio is not None:
            return [Target("ratio to the peer", bounds[kind], ratio)]
    return []
