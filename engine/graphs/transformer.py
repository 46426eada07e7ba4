"""What the `llama` and `qwen3` architectures have in common, read from a file's keys and tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import MetadataError
from engine.gguf import Metadata
from engine.graphs.attention import Attention, AttentionShape
from engine.graphs.graph import Embedding, FeedForward, Graph, Layer
from engine.graphs.rope import RopeTable, rope_table
from engine.kernels.canon import HeadNorms
from engine.linear import Linear, Projections
from engine.weights import Weights

MAX_LAYERS = 512


@dataclass(frozen=True)
class Sizes:
    """The sizes that every architecture declares; `prefix` is its name."""

    prefix: str
    layers: int
    width: int
    feed_forward: int
    attention: AttentionShape
    epsilon: np.float32
    vocabulary: int

    @classmethod
    def from_metadata(cls, metadata: Metadata, vocabulary: int) -> Sizes:
        """Read and check the sizes; `vocabulary` is the number of tokens."""
        prefix = metadata.string("general.architecture")
        width = _positive(metadata, f"{prefix}.embedding_length")
        heads = _positive(metadata, f"{prefix}.attention.head_count")
        kv_heads = _positive(metadata, f"{prefix}.attention.head_count_kv", heads)
        if heads % kv_heads:
            raise MetadataError(f"{prefix}: {heads} heads cannot share {kv_heads} key and value heads")
        key_dim = _positive(metadata, f"{prefix}.attention.key_length", max(1, width // heads))
        value_dim = _positive(metadata, f"{prefix}.attention.value_length", max(1, width // heads))
        layers = _positive(metadata, f"{prefix}.block_count")
        if layers > MAX_LAYERS:
            raise MetadataError(f"{prefix}.block_count is {layers}; the limit is {MAX_LAYERS}")
        epsilon = metadata.number(f"{prefix}.attention.layer_norm_rms_epsilon")
        if not 0 < epsilon < 1:
            raise MetadataError(f"{prefix}.attention.layer_norm_rms_epsilon is {epsilon}")
        return cls(
            prefix,
            layers,
            width,
            _positive(metadata, f"{prefix}.feed_forward_length"),
            AttentionShape(heads, kv_heads, key_dim, value_dim),
            np.float32(epsilon),
            vocabulary,
        )


def _positive(metadata: Metadata, key: str, default: int | None = None) -> int:
    value = metadata.uint(key) if default is None else metadata.uint(key, default)
    if value == 0:
        raise MetadataError(f"{key} is 0")
    return value


def build_transformer(
    metadata: Metadata, weights: Weights, vocabulary: int, context: int, *, head_norms: bool, adjacent: bool
) -> Graph:
    """A graph of attention layers; `adjacent` says which dimensions RoPE pairs."""
    sizes = Sizes.from_metadata(metadata, vocabulary)
    dim = sizes.attention.key_dim
    pairs = metadata.uint(f"{sizes.prefix}.rope.dimension_count", dim) // 2
    divisors = weights.array("rope_freqs.weight", (pairs,)) if "rope_freqs.weight" in weights else None
    rope = rope_table(metadata, sizes.prefix, dim, context, adjacent, divisors)
    scale = np.float32(metadata.number(f"{sizes.prefix}.attention.scale", 0.0) or dim**-0.5)
    layers = tuple(
        Layer(
            weights.array(f"blk.{index}.attn_norm.weight", (sizes.width,)),
            attention(weights, sizes, index, rope, scale, head_norms=head_norms, gated=False),
            weights.array(f"blk.{index}.ffn_norm.weight", (sizes.width,)),
            feed_forward(weights, sizes, index),
        )
        for index in range(sizes.layers)
    )
    return finish(weights, sizes, layers)


def attention(
    weights: Weights,
    sizes: Sizes,
    index: int,
    rope: RopeTable,
    scale: np.float32,
    *,
    head_norms: bool,
    gated: bool,
) -> Attention:
    """The attention sublayer of layer `index`."""
    shape, name = sizes.attention, f"blk.{index}.attn_"
    if gated and shape.key_dim != shape.value_dim:
        raise MetadataError(
            f"{sizes.prefix}: gated attention needs values as long as keys, not {shape.value_dim} and "
            f"{shape.key_dim}"
        )
    return Attention(
        shape,
        Projections(
            weights.linear(f"{name}q.weight", sizes.width, shape.heads * shape.key_dim * (2 if gated else 1)),
            weights.linear(f"{name}k.weight", sizes.width, shape.kv_heads * shape.key_dim),
            weights.linear(f"{name}v.weight", sizes.width, shape.kv_heads * shape.value_dim),
        ),
        weights.linear(f"{name}output.weight", shape.heads * shape.value_dim, sizes.width),
        HeadNorms(
            weights.array(f"{name}q_norm.weight", (shape.key_dim,)) if head_norms else None,
            weights.array(f"{name}k_norm.weight", (shape.key_dim,)) if head_norms else None,
            sizes.epsilon,
        ),
        rope,
        scale,
        gated,
        weights.kernels,
    )


def feed_forward(weights: Weights, sizes: Sizes, index: int) -> FeedForward:
    """The feed-forward sublayer of layer `index`."""
    name = f"blk.{index}.ffn_"
    return FeedForward(
        Projections(
            weights.linear(f"{name}gate.weight", sizes.width, sizes.feed_forward),
            weights.linear(f"{name}up.weight", sizes.width, sizes.feed_forward),
        ),
        weights.linear(f"{name}down.weight", sizes.feed_forward, sizes.width),
        weights.kernels,
    )


def finish(weights: Weights, sizes: Sizes, layers: tuple[Layer, ...]) -> Graph:
    """Embedding and output around the layers; without `output.weight` the embedding serves as output.

    A tied embedding on the inverse list holds rotated rows, so as output it takes rotated activations.
    """
    name = "token_embd.weight"
    matrix = weights.matrix(name, sizes.width, sizes.vocabulary)
    rotation = weights.rotation(name, sizes.width)
    if "output.weight" in weights:
        output = weights.linear("output.weight", sizes.width, sizes.vocabulary)
    else:
        output = Linear(matrix, rotation, weights.kernels)
    output_norm = weights.array("output_norm.weight", (sizes.width,))
    weights.close()
    return Graph(
        Embedding(matrix, rotation, weights.kernels),
        layers,
        output_norm,
        output,
        sizes.epsilon,
        weights.kernels,
        sizes.vocabulary,
    )
