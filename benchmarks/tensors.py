"""Which tensors a model of a shape has, in file order: names, shapes, storage types and what fills them.

Matrices take the type of the file. In a folded file the alpha and beta projections are BF16 and unfolded,
as Bonsai 2 releases them; in an unfolded one they are packed like the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from benchmarks.shapes import DeltaSizes, Shape
from engine.tensor_types import BF16, F32, TensorType

FOLDED = re.compile(
    r"output\.weight|blk\.\d+\.(attn_(q|k|v|qkv|gate|output)|ffn_(gate|up|down)|ssm_out)\.weight"
)
NORM, TAPS, DECAY, STEP = (0.5, 1.5), (-0.5, 0.5), (-1.0, -0.01), (-1.0, 1.0)


@dataclass(frozen=True)
class TensorPlan:
    """One tensor; `shape` in file order, inputs first. Values are uniform in `bounds`, or a matrix's."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    bounds: tuple[float, float] | None = None

    @property
    def elements(self) -> int:
        """Number of weights."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.elements // self.type.block * self.type.nbytes


def plan_tensors(shape: Shape, kind: TensorType, folded: bool) -> list[TensorPlan]:
    """All tensors of the file; `kind` is the type of its matrices."""
    width, rows = shape.width, shape.vocabulary.rows
    plans = [
        TensorPlan("token_embd.weight", (width, rows), kind),
        TensorPlan("output_norm.weight", (width,), F32, NORM),
    ]
    if not shape.tied:
        plans.append(TensorPlan("output.weight", (width, rows), kind))
    for layer in range(shape.layers):
        plans += _layer(shape, layer, kind, folded)
    return plans


def is_folded(name: str) -> bool:
    """Whether a folded file names this tensor as folded."""
    return FOLDED.fullmatch(name) is not None


def _layer(shape: Shape, layer: int, kind: TensorType, folded: bool) -> Iterator[TensorPlan]:
    name, width = f"blk.{layer}.", shape.width
    second_norm = "ffn_norm" if shape.delta is None else "post_attention_norm"
    yield TensorPlan(f"{name}attn_norm.weight", (width,), F32, NORM)
    yield TensorPlan(f"{name}{second_norm}.weight", (width,), F32, NORM)
    if shape.is_attention(layer):
        yield from _attention(shape, name, kind)
    elif shape.delta is not None:
        yield from _delta_net(shape.delta, width, name, kind, folded)
    yield TensorPlan(f"{name}ffn_gate.weight", (width, shape.hidden), kind)
    yield TensorPlan(f"{name}ffn_up.weight", (width, shape.hidden), kind)
    yield TensorPlan(f"{name}ffn_down.weight", (shape.hidden, width), kind)


def _attention(shape: Shape, name: str, kind: TensorType) -> Iterator[TensorPlan]:
    width, dim = shape.width, shape.head_dim
    gated = 1 if shape.delta is None else 2  # each head's gate lies behind its query
    yield TensorPlan(f"{name}attn_q.weight", (width, shape.heads * dim * gated), kind)
    yield TensorPlan(f"{name}attn_k.weight", (width, shape.kv_heads * dim), kind)
    yield TensorPlan(f"{name}attn_v.weight", (width, shape.kv_heads * dim), kind)
    yield TensorPlan(f"{name}attn_q_norm.weight", (dim,), F32, NORM)
    yield TensorPlan(f"{name}attn_k_norm.weight", (dim,), F32, NORM)
    yield TensorPlan(f"{name}attn_output.weight", (shape.heads * dim, width), kind)


def _delta_net(
    delta: DeltaSizes, width: int, name: str, kind: TensorType, folded: bool
) -> Iterator[TensorPlan]:
    inner = delta.value_heads * delta.dim
    channels = 2 * delta.key_heads * delta.dim + inner
    small = BF16 if folded else kind
    yield TensorPlan(f"{name}attn_qkv.weight", (width, channels), kind)
    yield TensorPlan(f"{name}attn_gate.weight", (width, inner), kind)
    yield TensorPlan(f"{name}ssm_conv1d.weight", (delta.taps, channels), F32, TAPS)
    yield TensorPlan(f"{name}ssm_dt.bias", (delta.value_heads,), F32, STEP)
    yield TensorPlan(f"{name}ssm_a", (delta.value_heads,), F32, DECAY)
    yield TensorPlan(f"{name}ssm_alpha.weight", (width, delta.value_heads), small)
    yield TensorPlan(f"{name}ssm_beta.weight", (width, delta.value_heads), small)
    yield TensorPlan(f"{name}ssm_norm.weight", (delta.dim,), F32, NORM)
    yield TensorPlan(f"{name}ssm_out.weight", (inner, width), kind)
