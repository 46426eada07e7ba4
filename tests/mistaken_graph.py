"""The float64 graph of `qwen35` with one structural mistake switched on, to measure what each costs.

A mistake in a graph that was never trained is only other noise. On a trained model it is a worse likelihood.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from tests.float64_graph import Array, Float64Model

Mistake = Literal[
    "no rotation",
    "wrong signs",
    "no permutation before ssm_out",
    "grouped heads",
    "adjacent rope pairs",
    "no output gate",
    "no embedding inverse",
    "fp16 state",
]
MISTAKES: tuple[Mistake, ...] = get_args(Mistake)


class MistakenModel(Float64Model):
    """A folded file, read with one mistake; None is the right reading."""

    def __init__(self, data: bytes, mistake: Mistake | None) -> None:
        super().__init__(data)
        self.mistake = mistake
        if mistake == "wrong signs":  # each width begins with the last sign
            self.signs = {width: np.roll(signs, 1) for width, signs in self.signs.items()}

    def linear(self, name: str, x: Array) -> Array:
        """The rotation goes before everything else that could be wrong."""
        if self.mistake == "no rotation" and name in self.folded:
            return x @ self.stored(name).T
        return super().linear(name, x)

    def grouped_input(self, x: Array) -> Array:
        """The input of ssm_out."""
        return x if self.mistake == "no permutation before ssm_out" else super().grouped_input(x)

    def embedded(self, ids: list[int]) -> Array:
        """Rows as they are stored."""
        if self.mistake == "no embedding inverse":
            return self.stored("token_embd.weight")[ids]
        return super().embedded(ids)

    def key_head(self, head: int, heads: int, keys: int) -> int:
        """Neighbours share a key head, as in grouped-query attention."""
        return (
            head // (heads // keys)
            if self.mistake == "grouped heads"
            else super().key_head(head, heads, keys)
        )

    def pair(self, i: int, dims: int) -> tuple[int, int]:
        """Dimensions next to each other turn together."""
        return (2 * i, 2 * i + 1) if self.mistake == "adjacent rope pairs" else super().pair(i, dims)

    def gated(self, out: Array, gate: Array) -> Array:
        """What attention gives, ungated."""
        return out if self.mistake == "no output gate" else super().gated(out, gate)

    def kept(self, state: Array) -> Array:
        """The recurrent state as it is kept from one token to the next."""
        return (
            state.astype(np.float16).astype(np.float64)
            if self.mistake == "fp16 state"
            else super().kept(state)
        )
