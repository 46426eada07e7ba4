"""The `qwen3` architecture (Bonsai 1.7B, 4B and 8B): as `llama`, with normed query and key heads.

Per head q = rms(q, q_norm) and k = rms(k, k_norm) before RoPE, which pairs dimensions (i, i + dim/2) and
may be scaled by YaRN (Bonsai 8B).
"""

from __future__ import annotations

from engine.gguf import Metadata
from engine.graphs.graph import Graph
from engine.graphs.transformer import build_transformer
from engine.weights import Weights


def build(metadata: Metadata, weights: Weights, vocabulary: int, context: int) -> Graph:
    """The graph of a `qwen3` file for sequences of up to `context` tokens."""
    return build_transformer(metadata, weights, vocabulary, context, head_norms=True, adjacent=False)
