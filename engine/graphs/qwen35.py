"""The `qwen35` architecture (Bonsai 27B, Bonsai 2): Gated DeltaNet layers, every fourth full attention.

Full attention layers have normed heads, RoPE on the first dimensions only (text positions make the
interleaved sections plain RoPE) and a sigmoid output gate. Folded files keep the input features of
`ssm_out` grouped by key head while everything else is tiled, so that one input is permuted first. Trailing
multi-token-prediction blocks are not part of the main pass and are skipped.
"""

from __future__ import annotations

import numpy as np

from engine.errors import MetadataError
from engine.gguf import Metadata
from engine.graphs.delta_net import DeltaNet, DeltaShape
from engine.graphs.graph import Graph, Layer, Mixer
from engine.graphs.rope import rope_table
from engine.graphs.transformer import Sizes, attention, feed_forward, finish
from engine.kernels.canon import DeltaWeights, Indices
from engine.linear import Projections
from engine.weights import Weights


def build(metadata: Metadata, weights: Weights, vocabulary: int, context: int) -> Graph:
    """The graph of a `qwen35` file for sequences of up to `context` tokens."""
    sizes = Sizes.from_metadata(metadata, vocabulary)
    shape = _delta_shape(metadata)
    predictors = metadata.uint("qwen35.nextn_predict_layers", 0)
    layer_count = sizes.layers - predictors
    if layer_count < 1:
        raise MetadataError(f"qwen35.nextn_predict_layers is {predictors} of {sizes.layers} blocks")
    weights.skip_layers(layer_count)
    _require_sections(metadata)
    rope = rope_table(metadata, "qwen35", sizes.attention.key_dim, context)
    scale = np.float32(sizes.attention.key_dim**-0.5)
    recurrent = _recurrent_layers(metadata, layer_count)
    layers = []
    for index in range(layer_count):
        mixer: Mixer
        if recurrent[index]:
            mixer = _delta_net(weights, sizes, shape, index)
        else:
            mixer = attention(weights, sizes, index, rope, scale, head_norms=True, gated=True)
        layers.append(
            Layer(
                weights.array(f"blk.{index}.attn_norm.weight", (sizes.width,)),
                mixer,
                weights.array(f"blk.{index}.post_attention_norm.weight", (sizes.width,)),
                feed_forward(weights, sizes, index),
            )
        )
    return finish(weights, sizes, tuple(layers))


def _delta_shape(metadata: Metadata) -> DeltaShape:
    dim = metadata.uint("qwen35.ssm.state_size")
    key_heads = metadata.uint("qwen35.ssm.group_count")
    value_heads = metadata.uint("qwen35.ssm.time_step_rank")
    taps = metadata.uint("qwen35.ssm.conv_kernel")
    inner = metadata.uint("qwen35.ssm.inner_size")
    if not dim or dim % 16 or not key_heads or not value_heads or value_heads % key_heads:
        raise MetadataError(
            f"qwen35.ssm: state_size {dim} must be a multiple of 16, and time_step_rank {value_heads} "
            f"of group_count {key_heads}"
        )
    if inner != dim * value_heads:
        raise MetadataError(f"qwen35.ssm.inner_size is {inner}; expected {dim} x {value_heads}")
    if not 2 <= taps <= 64:
        raise MetadataError(f"qwen35.ssm.conv_kernel is {taps}; expected 2 to 64")
    return DeltaShape(key_heads, value_heads, dim, taps)


def _require_sections(metadata: Metadata) -> None:
    sections = metadata.integers("qwen35.rope.dimension_sections")
    if len(sections) != 4 or np.any(sections < 0):
        raise MetadataError("qwen35.rope.dimension_sections must be four numbers of dimensions")


def _recurrent_layers(metadata: Metadata, count: int) -> list[bool]:
    key = "qwen35.attention.recurrent_layers"
    if key in metadata:
        flags = metadata.integers(key)
        if len(flags) < count:
            raise MetadataError(f"{key} has {len(flags)} entries for {count} layers")
        return [bool(flag) for flag in flags[:count]]
    interval = metadata.uint("qwen35.full_attention_interval", 4)
    if interval == 0:
        raise MetadataError("qwen35.full_attention_interval is 0")
    return [(index + 1) % interval != 0 for index in range(count)]


def _delta_net(weights: Weights, sizes: Sizes, shape: DeltaShape, index: int) -> DeltaNet:
    name = f"blk.{index}."
    return DeltaNet(
        shape,
        Projections(
            weights.linear(f"{name}attn_qkv.weight", sizes.width, shape.channels),
            weights.linear(f"{name}attn_gate.weight", sizes.width, shape.value_width),
            weights.linear(f"{name}ssm_alpha.weight", sizes.width, shape.value_heads),
            weights.linear(f"{name}ssm_beta.weight", sizes.width, shape.value_heads),
        ),
        weights.linear(
            f"{name}ssm_out.weight", shape.value_width, sizes.width, _grouped_order(weights, shape)
        ),
        DeltaWeights(
            np.ascontiguousarray(weights.array(f"{name}ssm_conv1d.weight", (shape.channels, shape.taps)).T),
            weights.array(f"{name}ssm_a", (shape.value_heads,)),
            weights.array(f"{name}ssm_dt.bias", (shape.value_heads,)),
            weights.array(f"{name}ssm_norm.weight", (shape.dim,)),
            sizes.epsilon,
        ),
        weights.kernels,
    )


def _grouped_order(weights: Weights, shape: DeltaShape) -> Indices | None:
    """The order that takes tiled features (rep, key, dim) to grouped ones (key, rep, dim), if needed."""
    if weights.contract is None or not weights.contract.grouped_values:
        return None
    repeats = shape.value_heads // shape.key_heads
    tiled = np.arange(shape.value_width).reshape(repeats, shape.key_heads, shape.dim)
    return tiled.transpose(1, 0, 2).reshape(-1)
