"""Measuring in rounds: our engine with readings of the memory in between, then the peer, and again.

A virtual machine's memory can change its speed several times a second. What is compared with it is therefore
interleaved with it: a round's bandwidth is the bytes of all its readings over their time. Medians are over
the rounds; all rounds are kept, so that one which others disturbed shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from benchmarks.bandwidth import ReadSpeed
from benchmarks.other_load import OtherLoad
from benchmarks.peer import Peer

Rate = Callable[[], float]
"""Runs something once; returns its tokens a second."""
InterleavedRate = Callable[[Callable[[], None]], float]
"""The same, and calls its argument before, within or after, to read the memory, which is not timed."""


@dataclass
class Rounds:
    """What the rounds gave: bytes a second read in each, tokens a second of ours and of the peer's."""

    reader: str
    bandwidths: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    other_processors: float | None = None

    @property
    def bandwidth(self) -> float:
        """Bytes a second: the median round's."""
        return median(self.bandwidths)

    def share(self, nbytes: float) -> float:
        """Of its round's bandwidth, how much ours used where a token reads `nbytes`; the median."""
        shares = (rate * nbytes / speed for rate, speed in zip(self.ours, self.bandwidths, strict=True))
        return median(shares)

    def conditions(self) -> dict[str, Any]:
        """What results say of the machine during the rounds."""
        return {
            "read_bytes_per_second": self.bandwidth,
            "reader": self.reader,
            "bandwidths": self.bandwidths,
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


def measure(
    count: int, speed: ReadSpeed, ours: InterleavedRate, theirs: Rate | None, children: Sequence[int]
) -> Rounds:
    """`count` rounds; `children` are the processes that belong to the measurement."""
    rounds = Rounds(speed.reader)
    load = OtherLoad(children)
    for _ in range(count):
        readings: list[tuple[int, float]] = []
        rounds.ours.append(ours(partial(_read, speed, readings)))
        nbytes, seconds = map(sum, zip(*readings, strict=True))
        rounds.bandwidths.append(nbytes / seconds)
        if theirs is not None:
            rounds.theirs.append(theirs())
    rounds.other_processors = load.processors()
    return rounds


def _read(speed: ReadSpeed, readings: list[tuple[int, float]]) -> None:
    readings.append(speed.measure())


def bandwidth_line(rounds: Rounds, threads: int) -> tuple[str, str]:
    """The read bandwidth, for printing."""
    each = " ".join(f"{value / 1e9:.1f}" for value in rounds.bandwidths)
    text = f"{rounds.bandwidth / 1e9:.1f} GB/s read by {threads} threads ({rounds.reader}; rounds: {each})"
    return "memory", text


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
