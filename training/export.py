"""The trained parameters as a `qwen35` GGUF file: PQ2_0, Hadamard-folded as Bonsai 2 is, with its tokenizer.

Knows file formats; how the parameters came about does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.gguf_file import Key, write_gguf
from benchmarks.tensors import TensorPlan
from engine.tensor_types import BF16, F32, PQ2_0, TensorType
from training.network import ternary
from training.shape import GROUP, Shape, is_folded, is_rounded
from training.tokenizer import tokenizer_keys

NAME = "Prism Small World"
CONTEXT = 4096
TEMPLATE = Path(__file__).with_name("chat_template.jinja")
Array = NDArray[np.float32]


def export(path: Path, shape: Shape, parameters: Mapping[str, Tensor], merges: list[str]) -> tuple[int, str]:
    """Write the file; its length and SHA-256."""
    blobs = {plan.name: tensor_bytes(plan, parameters[plan.name]) for plan in tensor_plans(shape)}

    def fill(plan: TensorPlan) -> Iterator[bytes]:
        yield blobs[plan.name]

    keys = model_keys(shape) + rotation_keys(shape) + tokenizer_keys(merges)
    keys.append(("tokenizer.chat_template", "string", TEMPLATE.read_text("utf-8")))
    return write_gguf(path, keys, tensor_plans(shape), fill, lambda _: None)


def tensor_plans(shape: Shape) -> list[TensorPlan]:
    """Names, shapes (inputs first) and storage types."""
    return [TensorPlan(name, dims[::-1], _type_of(name)) for name, dims in shape.tensors().items()]


def _type_of(name: str) -> TensorType:
    if is_rounded(name):
        return PQ2_0
    return BF16 if name.endswith(("ssm_alpha.weight", "ssm_beta.weight")) else F32


def tensor_bytes(plan: TensorPlan, parameter: Tensor) -> bytes:
    """A parameter as the file stores it."""
    if plan.type is PQ2_0:
        codes, scales = ternary(parameter)
        return ternary_blocks(codes.numpy(), scales.numpy())
    if plan.type is BF16:
        bits: bytes = parameter.bfloat16().view(torch.int16).numpy().astype("<i2").tobytes()
        return bits
    if plan.name.endswith("ssm_a"):
        parameter = -torch.exp(parameter)
    values: bytes = parameter.numpy().astype("<f4").tobytes()
    return values


def ternary_blocks(codes: Array, scales: Array) -> bytes:
    """PQ2_0 of codes -1, 0, 1 [groups, 128] and scales [groups, 1]: an fp16 scale, then two bits a code."""
    fields = (codes + 1).astype(np.uint8).reshape(len(codes), -1, 4)
    packed = fields[..., 0] | fields[..., 1] << 2 | fields[..., 2] << 4 | fields[..., 3] << 6
    return np.concatenate((scales.astype("<f2").view(np.uint8), packed), 1).tobytes()


def model_keys(shape: Shape) -> list[Key]:
    """Keys of the architecture, and what the file is."""
    sizes = {
        "block_count": shape.layers,
        "context_length": CONTEXT,
        "embedding_length": shape.width,
        "feed_forward_length": shape.hidden,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.dim,
        "attention.value_length": shape.dim,
        "rope.dimension_count": shape.rotary,
        "full_attention_interval": shape.interval,
        "ssm.conv_kernel": shape.taps,
        "ssm.state_size": shape.dim,
        "ssm.group_count": shape.key_heads,
        "ssm.time_step_rank": shape.value_heads,
        "ssm.inner_size": shape.value_width,
    }
    pairs = shape.rotary // 2
    sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3, 0]  # of no effect on text
    return [
        ("general.architecture", "string", "qwen35"),
        ("general.name", "string", NAME),
        ("general.license", "string", "apache-2.0"),
        ("general.quantization_version", "u32", 2),
        ("general.file_type", "u32", 141),
        *((f"qwen35.{name}", "u32", value) for name, value in sizes.items()),
        ("qwen35.attention.layer_norm_rms_epsilon", "f32", shape.epsilon),
        ("qwen35.rope.freq_base", "f32", shape.rope_base),
        ("qwen35.rope.dimension_sections", "[i32]", sections),
    ]


def rotation_keys(shape: Shape) -> list[Key]:
    """The Hadamard contract."""
    signs = shape.signs()
    values = {
        "version": ("u32", 1),
        "block_size": ("u32", GROUP),
        "transform": ("string", "normalized-sylvester-walsh-hadamard"),
        "axis": ("string", "input-last-dimension"),
        "sign_mode": ("string", "explicit"),
        "sign_widths": ("[i32]", list(signs)),
        "sign_values": ("[i32]", [sign for each in signs.values() for sign in each]),
        "weight_names": ("[string]", [name for name in shape.tensors() if is_folded(name)]),
        "inverse_weight_names": ("[string]", ["token_embd.weight"]),
        "gdn_v_grouped": ("bool", True),
    }
    return [(f"prism.hadamard.{name}", kind, value) for name, (kind, value) in values.items()]
