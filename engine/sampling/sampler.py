"""What the runtime needs of a sampler, whatever it does inside."""

from __future__ import annotations

from typing import Any, Protocol, Self

from engine.kernels.canon import Floats


class Sampler(Protocol):
    """Chooses tokens; may hold state (a generator, what was drawn) that `clone` and `restore` carry."""

    def sample(self, logits: Floats) -> int:
        """The chosen id, from float32 logits [vocabulary], which it leaves as they are."""

    def clone(self) -> Self:
        """An independent copy that will draw the same."""

    def restore(self, saved: Self) -> None:
        """Take over the state of an earlier clone."""

    def describe(self) -> dict[str, Any]:
        """The effective settings as a JSON object."""
