"""Reads an exported file back as PyTorch weights, decoding its blocks without the engine's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.gguf import parse_header
from engine.layout import Tensor as StoredTensor
from engine.layout import prove_layout
from training.shape import Shape


def read_weights(path: Path, shape: Shape) -> dict[str, Tensor]:
    """Every tensor of `shape` as float32, outputs first."""
    data = path.read_bytes()
    stored = prove_layout(parse_header(data, len(data)), len(data), memoryview(data))
    weights = {}
    for name, dims in shape.tensors().items():
        tensor = stored[name]
        assert tensor.shape == dims[::-1], name
        weights[name] = _decode(tensor, data[tensor.start : tensor.start + tensor.nbytes]).view(dims)
    return weights


def _decode(tensor: StoredTensor, raw: bytes) -> Tensor:
    if tensor.type.name == "PQ2_0":
        blocks = np.frombuffer(raw, np.uint8).reshape(-1, tensor.type.nbytes)
        scales = blocks[:, :2].copy().view("<f2").astype(np.float32)
        codes = np.stack([blocks[:, 2:] >> shift & 3 for shift in (0, 2, 4, 6)], -1).reshape(len(blocks), -1)
        return torch.from_numpy((codes.astype(np.float32) - 1) * scales)
    if tensor.type.name == "BF16":
        return torch.from_numpy(np.frombuffer(raw, "<i2").copy()).view(torch.bfloat16).float()
    assert tensor.type.name == "F32", tensor.type.name
    return torch.from_numpy(np.frombuffer(raw, "<f4").copy())
