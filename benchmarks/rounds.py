"""Measuring in rounds: the memory's speed, our engine, the peer, and again, so that all see the same machine.

Medians are over the rounds; all rounds are kept, so that one which others disturbed shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.bandwidth import ReadSpeed
from benchmarks.other_load import OtherLoad
from benchmarks.peer import Peer

Rate = Callable[[], float]
"""Runs something once; returns its tokens a second."""


@dataclass
class Rounds:
    """What the rounds gave: bytes a second by reader, tokens a second of ours and of the peer's."""

    reads: dict[str, list[float]] = field(default_factory=dict)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    other_processors: float | None = None

    @property
    def bandwidth(self) -> float:
        """Bytes a second: the median of the reader that was faster."""
        return max(map(median, self.reads.values()))

    def conditions(self) -> dict[str, Any]:
        """What results say of the machine during the rounds."""
        return {
            "read_bytes_per_second": self.bandwidth,
            "reads": self.reads,
            "other_processors": self.other_processors,
        }

    def compared(self, peer: Peer | None) -> dict[str, Any] | None:
        """What results say of the peer: who it was, its speed, and ours as a multiple of it."""
        if peer is None:
            return None
        rate = median(self.theirs)
        return {
            **peer.facts,
            "tokens_per_second": rate,
            "ratio": median(self.ours) / rate,
            "rounds": self.theirs,
        }


def measure(count: int, speed: ReadSpeed, ours: Rate, theirs: Rate | None, children: Sequence[int]) -> Rounds:
    """`count` rounds; `children` are the processes that belong to the measurement."""
    rounds = Rounds()
    load = OtherLoad(children)
    for _ in range(count):
        for name, value in speed.measure().items():
            rounds.reads.setdefault(name, []).append(value)
        rounds.ours.append(ours())
        if theirs is not None:
            rounds.theirs.append(theirs())
    rounds.other_processors = load.processors()
    return rounds


def bandwidth_line(rounds: Rounds, threads: int) -> tuple[str, str]:
    """The read bandwidth, for printing."""
    each = "; ".join(
        f"{name} {' '.join(f'{value / 1e9:.1f}' for value in values)}"
        for name, values in rounds.reads.items()
    )
    return "memory", f"{rounds.bandwidth / 1e9:.1f} GB/s read by {threads} threads (by reader: {each})"


def speed_line(label: str, rates: Sequence[float], more: str = "") -> tuple[str, str]:
    """A median of tokens a second with its rounds, for printing."""
    return label, f"{median(rates):.4g} tokens/s{more} (rounds: {' '.join(f'{rate:.4g}' for rate in rates)})"


def peer_lines(peer: dict[str, Any] | None, more: str = "") -> list[tuple[str, str]]:
    """The peer and the ratio to it, for printing."""
    if peer is None:
        return []
    return [
        speed_line("peer", peer["rounds"], more),
        ("", f"{peer['name']} {peer['version']}: {peer['system'].strip()}"),
        ("ratio", f"ours is {peer['ratio']:.3g} times as fast"),
    ]
