"""The models that tests evaluate: golden files, decoders made from them, and small random files of any kind.

Random files are written with `GgufWriter`; their weights are quantised by the `gguf` package or drawn as
raw blocks, so that nothing here depends on the code under test.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf.quants import quantize
from numpy.typing import NDArray

from engine.artifact import Pin
from engine.decoder import Decoder
from engine.errors import MetadataError
from engine.gguf import Metadata, parse_header
from engine.hadamard import read_contract
from engine.kernels import KERNEL_NAMES, choose_kernels
from engine.layout import prove_layout
from engine.model import GRAPHS
from engine.sampling import GreedySampler
from engine.state import State
from engine.weights import Weights
from tests.float64_graph import Float64Model
from tests.gguf_writer import BF16, F32, PQ2_0, PTQ1_0, Q1_0, Q2_0, GgufWriter
from tests.vocabularies import EOS, small

DATA = Path(__file__).parent / "data"
MODELS = DATA / "models"

# Type ids that the fixture writer has no names for.
Q5_0, Q5_1, Q6_K, TQ2_0 = 6, 7, 14, 35

# The backends whose bytes are compared with the first one's: NumPy and every native level that runs here.
BACKENDS = KERNEL_NAMES

EXPAND_ALL = 1 << 30


def golden_ids() -> list[int]:
    """The 48 token ids that the golden logits belong to."""
    ids: list[int] = json.loads((DATA / "prompt_ids.json").read_text())
    return ids


@cache
def golden_logits() -> dict[str, NDArray[np.float32]]:
    """Golden logits by `MODEL__exact` and `MODEL__int8`."""
    with np.load(DATA / "logits.npz") as file:
        return dict(file)


def model_path(name: str) -> Path:
    """The file of a golden model."""
    return MODELS / f"{name}.gguf"


def pin_of(path: Path) -> Pin:
    """The pin that a file has now."""
    data = path.read_bytes()
    return Pin(path, len(data), hashlib.sha256(data).hexdigest())


def build_decoder(
    data: bytes,
    *,
    bits: int = 16,
    context: int = 512,
    threads: int = 1,
    expansion_bytes: int = EXPAND_ALL,
    backend: str = "numpy",
) -> Decoder:
    """A decoder straight from the bytes of a file, without its tokenizer."""
    header = parse_header(data, len(data))
    tensors = prove_layout(header, len(data), memoryview(data))
    contract = read_contract(header.metadata, {name: tensor.shape for name, tensor in tensors.items()})
    kernels = choose_kernels(backend, threads, bits, expansion_bytes)
    own = memoryview(bytearray(data))  # a backend may rearrange the file's memory
    weights = Weights(tensors, own, kernels, contract)
    architecture = header.metadata.string("general.architecture")
    vocabulary = len(header.metadata.strings("tokenizer.ggml.tokens"))
    graph = GRAPHS[architecture](header.metadata, weights, vocabulary, context)
    return Decoder(graph, f"test/{bits}", context)


@cache
def golden_decoder(name: str, bits: int = 16, **options: Any) -> Decoder:
    """A decoder of a golden model; decoders hold no request, so tests may share one."""
    return build_decoder(model_path(name).read_bytes(), bits=bits, **options)


def relative_rmse(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Root mean square of the difference over that of the expected values."""
    difference = found.astype(np.float64) - expected
    return float(np.sqrt(np.mean(difference**2) / np.mean(expected.astype(np.float64) ** 2)))


def clear_best(logits: NDArray[Any], margin: float) -> NDArray[np.bool_]:
    """The positions of logits [tokens, vocabulary] whose best value leads by more than `margin`."""
    ranked = np.sort(logits, axis=-1)
    return np.asarray(ranked[:, -1] - ranked[:, -2] > margin)


def memory_bytes(state: State) -> list[bytes]:
    """The bytes of every array that a state holds for its tokens."""
    return [array.tobytes() for copies in state.checkpoint(0).copies for array in copies]


class Recorder(GreedySampler):
    """A greedy sampler that keeps the bytes of all logits it saw."""

    def __init__(self) -> None:
        self.logits: list[bytes] = []

    def sample(self, logits: NDArray[np.float32]) -> int:
        """The best id."""
        self.logits.append(logits.tobytes())
        return super().sample(logits)


def random_blocks(generator: np.random.Generator, kind: int, rows: int, inputs: int) -> bytes:
    """A random matrix [rows, inputs] in the bytes of any type, with values of about 1 / sqrt(inputs)."""
    size = inputs**-0.5
    if kind in (Q1_0, Q2_0, PQ2_0, PTQ1_0):
        group, nbytes = {Q1_0: (128, 18), Q2_0: (64, 18), PQ2_0: (128, 34), PTQ1_0: (128, 28)}[kind]
        blocks = generator.integers(0, 256, (rows * inputs // group, nbytes), np.uint8)
        if kind == PTQ1_0:  # not every byte packs five trits
            blocks = ((blocks % 243 * np.int64(256) + 242) // 243).astype(np.uint8)
        scales = (generator.uniform(0.5, 1.5, len(blocks)) * size).astype("<f2")
        start = 26 if kind == PTQ1_0 else 0
        blocks[:, start : start + 2] = scales.view(np.uint8).reshape(-1, 2)
        return blocks.tobytes()
    values: NDArray[np.float32] = (generator.standard_normal((rows, inputs)) * size).astype(np.float32)
    if kind == F32:
        return values.tobytes()
    if kind == Q6_K:  # the package cannot write it: any bytes are a block, the scale comes last
        raw = generator.integers(0, 256, (rows * inputs // 256, 210), np.uint8)
        raw[:, 208:] = np.full(len(raw), size / 2000, "<f2").view(np.uint8).reshape(-1, 2)
        return raw.tobytes()
    data: bytes = quantize(values, gguf.GGMLQuantizationType(kind)).tobytes()
    return data


class RandomFile:
    """Writes the file of a small random model: keys, then tensors by name and shape."""

    def __init__(self, architecture: str, kind: int, seed: int = 1) -> None:
        self.architecture = architecture
        self.kind = kind
        self.generator = np.random.default_rng(seed)
        self.writer = small().add("general.architecture", "string", architecture)
        self.vocabulary = EOS + 3

    def keys(self, sizes: Mapping[str, int], others: Mapping[str, tuple[str, Any]]) -> None:
        """Keys of the architecture: unsigned integers, and others by type and value, which win."""
        entries: dict[str, tuple[str, Any]] = {name: ("u32", value) for name, value in sizes.items()}
        for name, (kind, value) in (entries | dict(others)).items():
            self.writer.add(f"{self.architecture}.{name}", kind, value)

    def matrix(self, name: str, inputs: int, rows: int, kind: int | None = None) -> None:
        """A random matrix of the file's type, or of another."""
        kind = self.kind if kind is None else kind
        self.writer.tensor(name, (inputs, rows), kind, random_blocks(self.generator, kind, rows, inputs))

    def vector(self, name: str, shape: tuple[int, ...], low: float = 0.5, high: float = 1.5) -> None:
        """Random F32 values between two bounds, by default around 1 as norms have them."""
        values = self.generator.uniform(low, high, shape).astype(np.float32)
        self.writer.tensor(name, shape, F32, values.tobytes())

    def attention(self, layer: int, width: int, shape: tuple[int, int, int], *, norms: bool) -> None:
        """An attention sublayer: rows of the query projection, key and value heads, their dimension."""
        queries, kv_heads, dim = shape
        name = f"blk.{layer}.attn_"
        self.matrix(f"{name}q.weight", width, queries)
        self.matrix(f"{name}k.weight", width, kv_heads * dim)
        self.matrix(f"{name}v.weight", width, kv_heads * dim)
        if norms:
            self.vector(f"{name}q_norm.weight", (dim,))
            self.vector(f"{name}k_norm.weight", (dim,))

    def feed_forward(self, layer: int, width: int, hidden: int) -> None:
        """A feed-forward sublayer without its norm."""
        self.matrix(f"blk.{layer}.ffn_gate.weight", width, hidden)
        self.matrix(f"blk.{layer}.ffn_up.weight", width, hidden)
        self.matrix(f"blk.{layer}.ffn_down.weight", hidden, width)


def transformer_file(
    architecture: str = "llama",
    kind: int = F32,
    *,
    keys: Mapping[str, tuple[str, Any]] | None = None,
    tied: bool = False,
    divisors: int = 0,
    spare_rows: int = 0,
) -> GgufWriter:
    """A random `llama` or `qwen3` file: two layers of width 256, 4 heads of 128 over 2 key heads.

    `divisors` adds that many frequency divisors, `spare_rows` rows of the embedding beyond the tokens.
    """
    file = RandomFile(architecture, kind)
    width, heads, kv_heads, dim, hidden = 256, 4, 2, 128, 512
    file.keys(
        {
            "block_count": 2,
            "context_length": 512,
            "embedding_length": width,
            "feed_forward_length": hidden,
            "attention.head_count": heads,
            "attention.head_count_kv": kv_heads,
            "attention.key_length": dim,
            "attention.value_length": dim,
        },
        {"attention.layer_norm_rms_epsilon": ("f32", 1e-5), **(keys or {})},
    )
    file.matrix("token_embd.weight", width, file.vocabulary + spare_rows)
    file.vector("output_norm.weight", (width,))
    if not tied:
        file.matrix("output.weight", width, file.vocabulary)
    if divisors:
        file.vector("rope_freqs.weight", (divisors,))
    for layer in range(2):
        file.vector(f"blk.{layer}.attn_norm.weight", (width,))
        file.attention(layer, width, (heads * dim, kv_heads, dim), norms=architecture == "qwen3")
        file.matrix(f"blk.{layer}.attn_output.weight", heads * dim, width)
        file.vector(f"blk.{layer}.ffn_norm.weight", (width,))
        file.feed_forward(layer, width, hidden)
    return file.writer


def qwen35_file(
    kind: int = PQ2_0,
    *,
    keys: Mapping[str, tuple[str, Any]] | None = None,
    tied: bool = False,
    folded: bool = False,
    predictors: int = 0,
) -> GgufWriter:
    """A random `qwen35` file: delta, attention, delta; 2 key and 6 value heads of 64.

    `folded` declares the Hadamard contract with blocks of 128 and grouped values; `predictors` adds
    multi-token-prediction blocks at the end.
    """
    file = RandomFile("qwen35", kind)
    width, hidden, dim, key_heads, value_heads, layers = 256, 512, 64, 2, 6, 3
    inner = dim * value_heads
    channels = 2 * dim * key_heads + inner
    file.keys(
        {
            "block_count": layers + predictors,
            "context_length": 512,
            "embedding_length": width,
            "feed_forward_length": hidden,
            "attention.head_count": 6,
            "attention.head_count_kv": 2,
            "attention.key_length": dim,
            "attention.value_length": dim,
            "rope.dimension_count": 32,
            "ssm.conv_kernel": 4,
            "ssm.state_size": dim,
            "ssm.group_count": key_heads,
            "ssm.time_step_rank": value_heads,
            "ssm.inner_size": inner,
            "full_attention_interval": 2,
        },
        {
            "attention.layer_norm_rms_epsilon": ("f32", 1e-6),
            "rope.freq_base": ("f32", 1e7),
            "rope.dimension_sections": ("[i32]", [6, 5, 5, 0]),
            **({"nextn_predict_layers": ("u32", predictors)} if predictors else {}),
            **(keys or {}),
        },
    )
    file.matrix("token_embd.weight", width, file.vocabulary)
    file.vector("output_norm.weight", (width,))
    if not tied:
        file.matrix("output.weight", width, file.vocabulary)
    for layer in range(layers + predictors):
        name = f"blk.{layer}."
        file.vector(f"{name}attn_norm.weight", (width,))
        file.vector(f"{name}post_attention_norm.weight", (width,))
        if layer == 1 or layer >= layers:
            file.attention(layer, width, (6 * dim * 2, 2, dim), norms=True)
            file.matrix(f"{name}attn_output.weight", 6 * dim, width)
        else:
            file.matrix(f"{name}attn_qkv.weight", width, channels)
            file.matrix(f"{name}attn_gate.weight", width, inner)
            file.vector(f"{name}ssm_conv1d.weight", (4, channels), -0.5, 0.5)
            file.vector(f"{name}ssm_dt.bias", (value_heads,), -1, 1)
            file.vector(f"{name}ssm_a", (value_heads,), -1, -0.01)
            file.matrix(f"{name}ssm_alpha.weight", width, value_heads, BF16)
            file.matrix(f"{name}ssm_beta.weight", width, value_heads, BF16)
            file.vector(f"{name}ssm_norm.weight", (dim,))
            file.matrix(f"{name}ssm_out.weight", inner, width)
        file.feed_forward(layer, width, hidden)
        if layer >= layers:
            file.matrix(f"{name}nextn.eh_proj.weight", 2 * width, width)
            file.vector(f"{name}nextn.enorm.weight", (width,))
            file.vector(f"{name}nextn.hnorm.weight", (width,))
    if folded:
        _declare_folded(file, layers, tied)
    return file.writer


def _declare_folded(file: RandomFile, layers: int, tied: bool) -> None:
    """The Hadamard contract over every matrix of `qwen35_file` that may be folded."""
    shared = ("ffn_gate", "ffn_up", "ffn_down")
    names = [] if tied else ["output.weight"]
    for layer in range(layers):
        own = "attn_q attn_k attn_v attn_output" if layer == 1 else "attn_qkv attn_gate ssm_out"
        names += [f"blk.{layer}.{kind}.weight" for kind in (*own.split(), *shared)]
    widths = [256, 384, 512]
    signs = file.generator.choice([-1, 1], sum(widths)).tolist()
    for name, kind, value in (
        ("version", "u32", 1),
        ("block_size", "u32", 128),
        ("transform", "string", "normalized-sylvester-walsh-hadamard"),
        ("axis", "string", "input-last-dimension"),
        ("sign_mode", "string", "explicit"),
        ("sign_widths", "[i32]", widths),
        ("sign_values", "[i32]", signs),
        ("weight_names", "[string]", names),
        ("inverse_weight_names", "[string]", ["token_embd.weight"]),
        ("gdn_v_grouped", "bool", True),
    ):
        file.writer.add(f"prism.hadamard.{name}", kind, value)


def unfolded_file(data: bytes) -> GgufWriter:
    """The twin of a folded file: float32 weights with the rotations multiplied in, and no contract."""
    model = Float64Model(data)
    metadata = model.metadata
    writer = GgufWriter()
    for key in metadata:
        if key.startswith(f"{model.architecture}."):
            writer.add(key, *_value_of(metadata, key))
    writer.add("general.architecture", "string", model.architecture)
    writer.add("tokenizer.ggml.tokens", "[string]", metadata.strings("tokenizer.ggml.tokens"))
    for name, tensor in model.tensors.items():
        weights = model.unfolded(name).astype("<f4")
        writer.tensor(name, tensor.shape, F32, weights.tobytes())
    return writer


def _value_of(metadata: Metadata, key: str) -> tuple[str, Any]:
    """Type and value of a key that is an unsigned integer, a number or an array of integers."""
    for kind, get in (("u32", metadata.uint), ("f32", metadata.number)):
        with suppress(MetadataError):
            return kind, get(key)
    return "[i32]", metadata.integers(key).tolist()
