"""The sizes of the model that is trained, the tensors that follow from them, and the fixed signs.

Knows the names that a `qwen35` file gives its tensors, and nothing of PyTorch.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

GROUP = 128  # weights a scale, and inputs a block of the rotation
_FOLDED = re.compile(
    r"output\.weight|blk\.\d+\.(attn_(q|k|v|qkv|gate|output)|ffn_(gate|up|down)|ssm_out)\.weight"
)


def is_folded(name: str) -> bool:
    """Whether the weight takes rotated inputs."""
    return _FOLDED.fullmatch(name) is not None


def is_rounded(name: str) -> bool:
    """Whether the weight is ternary."""
    return is_folded(name) or name == "token_embd.weight"


@dataclass(frozen=True)
class Shape:
    """Sizes of a `qwen35` model; all head dimensions are `dim`."""

    vocabulary: int = 1280
    width: int = 256
    layers: int = 4
    interval: int = 2  # every second layer is full attention
    hidden: int = 768
    heads: int = 4
    kv_heads: int = 2
    key_heads: int = 2
    value_heads: int = 4
    dim: int = 64
    rotary: int = 32
    taps: int = 4
    rope_base: float = 10_000.0
    epsilon: float = 1e-6

    @property
    def key_width(self) -> int:
        """Width of all keys of a delta layer."""
        return self.key_heads * self.dim

    @property
    def value_width(self) -> int:
        """Width of all values of a delta layer."""
        return self.value_heads * self.dim

    @property
    def channels(self) -> int:
        """Width of queries, keys and values of a delta layer together."""
        return 2 * self.key_width + self.value_width

    def is_attention(self, layer: int) -> bool:
        """Whether a layer is full attention rather than a delta net."""
        return (layer + 1) % self.interval == 0

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name in file order, outputs first as PyTorch has them."""
        found: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocabulary, self.width),
            "output_norm.weight": (self.width,),
            "output.weight": (self.vocabulary, self.width),
        }
        for layer in range(self.layers):
            name = f"blk.{layer}."
            found |= {f"{name}attn_norm.weight": (self.width,)}
            found |= {f"{name}post_attention_norm.weight": (self.width,)}
            sublayer = self._attention() if self.is_attention(layer) else self._delta_net()
            found |= {name + key: dims for key, dims in sublayer.items()}
            found |= {f"{name}ffn_gate.weight": (self.hidden, self.width)}
            found |= {f"{name}ffn_up.weight": (self.hidden, self.width)}
            found |= {f"{name}ffn_down.weight": (self.width, self.hidden)}
        return found

    def _attention(self) -> dict[str, tuple[int, ...]]:
        return {
            "attn_q.weight": (2 * self.heads * self.dim, self.width),  # each head's gate behind its query
            "attn_k.weight": (self.kv_heads * self.dim, self.width),
            "attn_v.weight": (self.kv_heads * self.dim, self.width),
            "attn_q_norm.weight": (self.dim,),
            "attn_k_norm.weight": (self.dim,),
            "attn_output.weight": (self.width, self.heads * self.dim),
        }

    def _delta_net(self) -> dict[str, tuple[int, ...]]:
        return {
            "attn_qkv.weight": (self.channels, self.width),
            "attn_gate.weight": (self.value_width, self.width),
            "ssm_conv1d.weight": (self.channels, self.taps),
            "ssm_dt.bias": (self.value_heads,),
            "ssm_a": (self.value_heads,),
            "ssm_alpha.weight": (self.value_heads, self.width),
            "ssm_beta.weight": (self.value_heads, self.width),
            "ssm_norm.weight": (self.dim,),
            "ssm_out.weight": (self.width, self.value_width),
        }

    def signs(self) -> dict[int, list[int]]:
        """The signs of every rotated width."""
        draw = random.Random("signs")
        widths = sorted({self.width, self.value_width, self.heads * self.dim, self.hidden})
        return {width: [draw.choice((-1, 1)) for _ in range(width)] for width in widths}
