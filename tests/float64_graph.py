"""A second opinion on the graphs: the formulas in float64, in plain NumPy, with exact products and sums.

Reads the same files, but shares nothing with the engine's kernels and graphs: it decodes blocks by itself
or through the `gguf` package, multiplies by a whole Hadamard matrix, and keeps keys and values unrounded.
What it lacks of the engine is therefore rounding alone.
"""

from __future__ import annotations

import math
from typing import Any

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

from engine.gguf import Metadata, parse_header
from engine.layout import Tensor, prove_layout

Array = NDArray[np.float64]


def hadamard_matrix(size: int) -> Array:
    """The normalised Sylvester matrix by its definition: (-1) to the number of common bits."""
    index = np.arange(size)
    common = np.bitwise_count(index[:, None] & index[None, :])
    return np.where(common % 2, -1.0, 1.0) / math.sqrt(size)


def _trit_digits() -> NDArray[np.int64]:
    """Digits of every byte that packs a number below 243, most significant first; -1 for other bytes."""
    digits = np.full((256, 5), -1)
    for value in range(243):
        digits[(value * 256 + 242) // 243] = [value // 3 ** (4 - place) % 3 for place in range(5)]
    return digits


def decode(tensor: Tensor, raw: NDArray[np.uint8]) -> Array:
    """The weights of raw rows [rows, row bytes]."""
    kind = tensor.type
    blocks = raw.reshape(raw.shape[0], -1, kind.nbytes)
    if kind.name == "Q1_0":
        codes = 2.0 * np.unpackbits(blocks[..., 2:], axis=-1, bitorder="little") - 1
        scales = blocks[..., :2]
    elif kind.name in ("Q2_0", "PQ2_0"):
        codes = np.stack([blocks[..., 2:] >> shift & 3 for shift in (0, 2, 4, 6)], -1) - 1.0
        scales = blocks[..., :2]
    elif kind.name == "PTQ1_0":
        digits = _trit_digits()[blocks[..., :26]]  # (rows, blocks, bytes, 5)
        stages = digits[..., :16, :], digits[..., 16:24, :], digits[..., 24:, :4]
        flat = [stage.swapaxes(-1, -2).reshape(*blocks.shape[:2], -1) for stage in stages]
        codes = np.concatenate(flat, -1) - 1.0
        scales = blocks[..., 26:]
    else:
        values: Array = dequantize(raw, gguf.GGMLQuantizationType(kind.id)).astype(np.float64)
        return values
    widened = np.ascontiguousarray(scales).view("<f2").astype(np.float64)
    return (codes.reshape(*blocks.shape[:2], -1) * widened).reshape(raw.shape[0], -1)


class Float64Model:
    """A file as float64 arrays; `unfold` multiplies the rotations into the weights first."""

    def __init__(self, data: bytes, *, unfold: bool = False) -> None:
        header = parse_header(data, len(data))
        self.metadata: Metadata = header.metadata
        self.tensors = prove_layout(header, len(data), memoryview(data))
        self.data = np.frombuffer(data, np.uint8)
        self.architecture = self.metadata.string("general.architecture")
        self.epsilon = self.key("attention.layer_norm_rms_epsilon")
        self.unfold = unfold
        self.folded: set[str] = set()
        if "prism.hadamard.version" in self.metadata:
            self._read_contract()

    def key(self, name: str, default: Any = None) -> Any:
        """A number of the architecture."""
        full = f"{self.architecture}.{name}"
        value = self.metadata.number(full, default)
        assert value is not None, full
        return int(value) if float(value).is_integer() else value

    def _read_contract(self) -> None:
        prefix = "prism.hadamard."
        self.hadamard = hadamard_matrix(self.metadata.uint(prefix + "block_size"))
        self.folded = {
            *self.metadata.strings(prefix + "weight_names"),
            *self.metadata.strings(prefix + "inverse_weight_names", []),
        }
        self.signs = {}
        values = self.metadata.integers(prefix + "sign_values").tolist()
        for width in self.metadata.integers(prefix + "sign_widths").tolist():
            self.signs[width] = np.array(values[:width], np.float64)
            del values[:width]
        self.grouped = self.metadata.boolean(prefix + "gdn_v_grouped", False)

    def stored(self, name: str) -> Array:
        """A tensor as the file has it, outermost axis first."""
        tensor = self.tensors[name]
        raw = self.data[tensor.start : tensor.start + tensor.nbytes]
        rows = tensor.nbytes // tensor.type.row_bytes(tensor.shape[0])
        return decode(tensor, raw.reshape(rows, -1)).reshape(tensor.shape[::-1])

    def _transform(self, x: Array) -> Array:
        """H on every block of the last axis."""
        blocks = x.reshape(*x.shape[:-1], -1, len(self.hadamard))
        return (blocks @ self.hadamard).reshape(x.shape)

    def _grouped_order(self) -> NDArray[np.intp]:
        """Feature hd + dim (rep + repeats key) comes from hd + dim (key + keys rep)."""
        dim, keys = self.key("ssm.state_size"), self.key("ssm.group_count")
        repeats = self.key("ssm.time_step_rank") // keys
        order = np.empty(dim * keys * repeats, np.intp)
        for key in range(keys):
            for rep in range(repeats):
                for hd in range(dim):
                    order[hd + dim * (rep + repeats * key)] = hd + dim * (key + keys * rep)
        return order

    def unfolded(self, name: str) -> Array:
        """A matrix as it would act on plain inputs: W = W' H diag(signs), columns put back."""
        stored = self.stored(name)
        if name not in self.folded:
            return stored
        plain = self._transform(stored) * self.signs[stored.shape[1]]
        if ".ssm_out." in name and self.grouped:
            tiled = np.empty_like(plain)
            tiled[:, self._grouped_order()] = plain
            return tiled
        return plain

    def linear(self, name: str, x: Array) -> Array:
        """W x for x [tokens, inputs]."""
        if name not in self.folded or self.unfold:
            return x @ self.unfolded(name).T
        if ".ssm_out." in name and self.grouped:
            x = self.grouped_input(x)
        return self._transform(x * self.signs[x.shape[1]]) @ self.stored(name).T

    def grouped_input(self, x: Array) -> Array:
        """The input of a folded ssm_out, whose features are grouped by key head."""
        return x[:, self._grouped_order()]

    def rms(self, x: Array, name: str) -> Array:
        """RMSNorm of the last axis with a stored weight."""
        root: Array = np.sqrt(np.mean(x**2, -1, keepdims=True) + self.epsilon)
        return x / root * self.stored(name)

    def logits(self, ids: list[int]) -> Array:
        """Logits [tokens, vocabulary] of one sequence from position 0."""
        x = self.embedded(ids)
        second = "post_attention_norm" if self.architecture == "qwen35" else "ffn_norm"
        for layer in range(self.key("block_count") - self.key("nextn_predict_layers", 0)):
            name = f"blk.{layer}."
            h = self.rms(x, f"{name}attn_norm.weight")
            x = x + (self._delta(name, h) if f"{name}ssm_a" in self.tensors else self._attention(name, h))
            f = self.rms(x, f"{name}{second}.weight")
            gate = self.linear(f"{name}ffn_gate.weight", f)
            up = self.linear(f"{name}ffn_up.weight", f)
            x = x + self.linear(f"{name}ffn_down.weight", _silu(gate) * up)
        output = "output.weight" if "output.weight" in self.tensors else "token_embd.weight"
        return self.linear(output, self.rms(x, "output_norm.weight"))

    def embedded(self, ids: list[int]) -> Array:
        """Embeddings [tokens, width], turned back where the rows are stored rotated."""
        x = self.stored("token_embd.weight")[ids]
        return self._transform(x) * self.signs[x.shape[1]] if "token_embd.weight" in self.folded else x

    def _attention(self, name: str, h: Array) -> Array:
        heads, kv_heads = self.key("attention.head_count"), self.key("attention.head_count_kv")
        dim = self.key("attention.key_length", self.key("embedding_length") // heads)
        tokens = len(h)
        q = self.linear(f"{name}attn_q.weight", h).reshape(tokens, heads, -1)
        k = self.linear(f"{name}attn_k.weight", h).reshape(tokens, kv_heads, dim)
        v = self.linear(f"{name}attn_v.weight", h).reshape(tokens, kv_heads, -1)
        gate = q[..., dim:]
        q = q[..., :dim]
        if f"{name}attn_q_norm.weight" in self.tensors:
            q, k = self.rms(q, f"{name}attn_q_norm.weight"), self.rms(k, f"{name}attn_k_norm.weight")
        q, k = self._rope(q), self._rope(k)
        scale = self.key("attention.scale", 0) or dim**-0.5
        out = np.empty((tokens, heads, v.shape[2]))
        for head in range(heads):
            kv = head // (heads // kv_heads)
            scores = q[:, head] @ k[:, kv].T * scale
            scores[np.triu_indices(tokens, 1)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights @ v[:, kv] / weights.sum(-1, keepdims=True)
        if gate.shape[-1]:
            out = self.gated(out, gate)
        return self.linear(f"{name}attn_output.weight", out.reshape(tokens, -1))

    def gated(self, out: Array, gate: Array) -> Array:
        """out * sigmoid(gate)."""
        product: Array = out / (1 + np.exp(-gate))
        return product

    def pair(self, i: int, dims: int) -> tuple[int, int]:
        """The two dimensions that frequency `i` turns."""
        return (2 * i, 2 * i + 1) if self.architecture == "llama" else (i, i + dims // 2)

    def _rope(self, x: Array) -> Array:
        """Positions 0, 1, … of x [tokens, heads, dim]."""
        dims = self.key("rope.dimension_count", x.shape[2])
        frequencies, magnitude = self._frequencies(dims)
        out = x.copy()
        for i, frequency in enumerate(frequencies):
            a, b = self.pair(i, dims)
            angle = np.arange(len(x))[:, None] * frequency
            cosine, sine = magnitude * np.cos(angle), magnitude * np.sin(angle)
            out[..., a] = x[..., a] * cosine - x[..., b] * sine
            out[..., b] = x[..., a] * sine + x[..., b] * cosine
        return out

    def _frequencies(self, dims: int) -> tuple[list[float], float]:
        base = self.key("rope.freq_base", 10000.0)
        frequencies = [base ** (-2 * i / dims) for i in range(dims // 2)]
        if "rope_freqs.weight" in self.tensors:
            divisors = self.stored("rope_freqs.weight")
            frequencies = [f / float(d) for f, d in zip(frequencies, divisors, strict=True)]
        kind = self.metadata.string(f"{self.architecture}.rope.scaling.type", "none")
        if kind == "none":
            return frequencies, 1.0
        factor = self.key("rope.scaling.factor")
        if kind == "linear":
            return [f / factor for f in frequencies], 1.0
        original = self.key("rope.scaling.original_context_length")
        low, high = (
            dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)
        )
        low, high = max(0, math.floor(low)), min(dims - 1, math.ceil(high))
        for i, f in enumerate(frequencies):
            kept = 1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
            frequencies[i] = f * (kept + (1 - kept) / factor)
        return frequencies, (1 + 0.1 * math.log(factor)) * self.key("rope.scaling.attn_factor", 1)

    def _delta(self, name: str, h: Array) -> Array:
        dim, keys = self.key("ssm.state_size"), self.key("ssm.group_count")
        heads, taps, tokens = self.key("ssm.time_step_rank"), self.key("ssm.conv_kernel"), len(h)
        m = self.linear(f"{name}attn_qkv.weight", h)
        z = self.linear(f"{name}attn_gate.weight", h).reshape(tokens, heads, dim)
        beta = 1 / (1 + np.exp(-self.linear(f"{name}ssm_beta.weight", h)))
        step = self.linear(f"{name}ssm_alpha.weight", h) + self.stored(f"{name}ssm_dt.bias")
        decay = np.exp(self.stored(f"{name}ssm_a") * np.logaddexp(0, step))
        kernel = self.stored(f"{name}ssm_conv1d.weight")  # (channels, taps)
        padded = np.concatenate((np.zeros((taps - 1, m.shape[1])), m))
        c = _silu(np.stack([np.einsum("jc,cj->c", padded[t : t + taps], kernel) for t in range(tokens)]))
        q = _unit(c[:, : keys * dim].reshape(tokens, keys, dim), self.epsilon) / math.sqrt(dim)
        k = _unit(c[:, keys * dim : 2 * keys * dim].reshape(tokens, keys, dim), self.epsilon)
        v = c[:, 2 * keys * dim :].reshape(tokens, heads, dim)
        out = np.empty((tokens, heads, dim))
        for head in range(heads):
            key, state = self.key_head(head, heads, keys), np.zeros((dim, dim))  # (value, key)
            for t in range(tokens):
                state = decay[t, head] * state
                change = beta[t, head] * (v[t, head] - state @ k[t, key])
                state = self.kept(state + np.outer(change, k[t, key]))
                out[t, head] = state @ q[t, key]
        y = self.rms(out, f"{name}ssm_norm.weight") * _silu(z)
        return self.linear(f"{name}ssm_out.weight", y.reshape(tokens, -1))

    def key_head(self, head: int, heads: int, keys: int) -> int:
        """The key head of a value head: they are tiled."""
        del heads
        return head % keys

    def kept(self, state: Array) -> Array:
        """A recurrent state as the next token finds it."""
        return state


def _silu(x: Array) -> Array:
    divisor: Array = 1 + np.exp(-x)
    return x / divisor


def _unit(x: Array, epsilon: float) -> Array:
    length: Array = np.sqrt(np.sum(x**2, -1, keepdims=True) + epsilon)
    return x / length
