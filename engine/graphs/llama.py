"""The `llama` architecture: attention without head norms, RoPE on adjacent pairs, SwiGLU.

Per layer: q, k, v = Wq h, Wk h, Wv h with h = rms(x); q and k rotated in pairs (2i, 2i+1), since the
converter permutes their rows; x += Wo attention(q, k, v); x += Wdown(silu(Wgate f) ⊙ Wup f), f = rms(x).
An optional `rope_freqs.weight` divides the frequencies (Llama 3.1).
"""

from __future__ import annotations

from engine.gguf import Metadata
from engine.graphs.graph import Graph
from engine.graphs.transformer import build_transformer
from engine.weights import Weights


def build(metadata: Metadata, weights: Weights, vocabulary: int, context: int) -> Graph:
    """The graph of a `llama` file for sequences of up to `context` tokens."""
    return build_transformer(metadata, weights, vocabulary, context, head_norms=False, adjacent=True)
