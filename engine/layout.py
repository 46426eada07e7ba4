"""Proves where every tensor lies and how its blocks are laid out.

A GGUF's offsets are not free: tensor i starts at the sum of the padded sizes before it. That makes them
a proof of the block geometry, and the only one for type id 42, which is stored in groups of 64 weights
(ggml's Q2_0) and of 128 (early Prism files). File names and `general.file_type` prove nothing and are
not read. Bytes after the data section are ignored, as llama.cpp does: they are hashed, never used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import (
    LayoutMismatchError,
    MalformedGgufError,
    MetadataError,
    TruncatedError,
    UnsupportedContractError,
    UnsupportedTypeError,
)
from engine.gguf import Header, TensorInfo
from engine.metadata import Metadata, shown
from engine.tensor_types import LEGACY_Q2_0, Q2_0, TENSOR_TYPES, TensorType

SAMPLED_BLOCKS = 256

KNOWN_CONTRACTS = frozenset(
    "prism.hadamard." + name
    for name in (
        "version",
        "block_size",
        "transform",
        "axis",
        "sign_mode",
        "sign_widths",
        "sign_values",
        "weight_names",
        "inverse_weight_names",
        "gdn_v_grouped",
    )
)


@dataclass(frozen=True)
class Tensor:
    """A tensor whose place is proved: `nbytes` bytes of blocks of `type` from byte `start` of the file."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    start: int
    nbytes: int


@dataclass(frozen=True)
class _Reading:
    """The tensors as one choice of geometry for id 42 places them, or what contradicts it."""

    tensors: tuple[Tensor, ...]
    end: int  # of the last tensor's bytes, without padding
    contradiction: str | None = None


def refuse_unknown_contracts(metadata: Metadata) -> None:
    """Raises `UnsupportedContractError` for a `prism.*` key that this engine does not know.

    Such a key may change what the weights mean, so ignoring it would compute nonsense.
    """
    for key in metadata:
        if key.startswith("prism.") and key not in KNOWN_CONTRACTS:
            raise UnsupportedContractError(
                f"the file declares {shown(key)}, a contract that this engine does not implement; "
                "use a newer engine or a file without it"
            )


def prove_layout(header: Header, file_bytes: int, data: memoryview | None) -> dict[str, Tensor]:
    """All tensors by name, in file order, with their types and absolute places.

    `data` is the whole file, or None if only its header was kept; without it the order of scale and
    codes inside the blocks of id 42 goes unchecked. Raises `UnsupportedTypeError`, `MalformedGgufError`,
    `LayoutMismatchError` or `TruncatedError`.
    """
    _refuse_foreign_writer(header.metadata)
    for info in header.tensors:
        if info.type_id not in TENSOR_TYPES:
            raise UnsupportedTypeError(_unsupported(info))
    if any(info.type_id == Q2_0.id for info in header.tensors):
        reading = _choose_group(header, file_bytes)
    else:
        reading = _place(header, Q2_0)
        if reading.contradiction:
            raise LayoutMismatchError(reading.contradiction)
    if reading.end > file_bytes:
        raise TruncatedError(
            f"the tensor data end at byte {reading.end}, but the file has only {file_bytes} bytes; "
            "was the download complete?"
        )
    if data is not None:
        _refuse_scale_last(data, reading.tensors)
    return {tensor.name: tensor for tensor in reading.tensors}


def _unsupported(info: TensorInfo) -> str:
    names = ", ".join(f"{kind.name} ({kind.id})" for kind in TENSOR_TYPES.values())
    nvfp4 = " (NVFP4)" if info.type_id == 40 else ""
    return f"tensor {shown(info.name)} has the unsupported type {info.type_id}{nvfp4}; supported are {names}"


def _refuse_foreign_writer(metadata: Metadata) -> None:
    try:
        metadata.uint("general.quantization_version", 2)
    except MetadataError:
        raise LayoutMismatchError(
            "general.quantization_version is not an integer: such files store the scale of a two-bit "
            "block after its codes under type ids that mean another order; convert the model with "
            "llama.cpp's tools instead"
        ) from None


def _place(header: Header, type_42: TensorType) -> _Reading:
    """Places all tensors one after the other and compares with the declared offsets."""
    tensors: list[Tensor] = []
    offset = end = 0
    for info in header.tensors:
        kind = type_42 if info.type_id == Q2_0.id else TENSOR_TYPES[info.type_id]
        inputs = info.shape[0]
        if inputs % kind.block:
            problem = f"{inputs} inputs, no multiple of the {kind.block} weights of a {kind.name} block"
            if info.type_id != Q2_0.id or inputs % Q2_0.block:
                raise MalformedGgufError(f"tensor {shown(info.name)} has {problem}")
            return _Reading((), 0, f"tensor {shown(info.name)} has {problem}")
        if info.offset != offset:
            problem = f"tensor {shown(info.name)} is at offset {info.offset}, but its place is {offset}"
            return _Reading((), 0, problem)
        start = header.data_start + offset
        nbytes = kind.row_bytes(inputs) * math.prod(info.shape[1:])
        tensors.append(Tensor(info.name, info.shape, kind, start, nbytes))
        end = start + nbytes
        offset = _padded(offset + nbytes, header.alignment)
    return _Reading(tuple(tensors), end)


def _padded(nbytes: int, alignment: int) -> int:
    return (nbytes + alignment - 1) // alignment * alignment


def _choose_group(header: Header, file_bytes: int) -> _Reading:
    """Reads id 42 in groups of 64 and of 128 and keeps the reading that the file bears out."""
    by_64, by_128 = _place(header, Q2_0), _place(header, LEGACY_Q2_0)
    possible = [reading for reading in (by_64, by_128) if reading.contradiction is None]
    if len(possible) == 2:  # the offsets fit both, so only the end of the file can tell
        shorter = min(possible, key=lambda reading: reading.end)
        if shorter.end > file_bytes:
            return shorter  # truncated either way, as the caller will find
        possible = [
            reading
            for reading in possible
            if reading.end <= file_bytes <= header.data_start + _data_bytes(header, reading)
        ]
        if len(possible) != 1:
            raise LayoutMismatchError(
                f"type id 42 may mean groups of 64 or of 128 weights: the offsets agree with both, and the "
                f"data would end at byte {by_64.end} or {by_128.end} of {file_bytes}; the file is refused "
                "because nothing tells which"
            )
    if not possible:
        raise LayoutMismatchError(
            "type id 42 fits neither of its layouts: "
            f"in groups of 64, {by_64.contradiction}; in groups of 128, {by_128.contradiction}"
        )
    return possible[0]


def _data_bytes(header: Header, reading: _Reading) -> int:
    return _padded(reading.end - header.data_start, header.alignment)


def _refuse_scale_last(data: memoryview, tensors: Sequence[Tensor]) -> None:
    """Some writers put codes before the scale under id 42; the offsets cannot show it, the blocks can.

    Ternary blocks have no code 3 and a finite scale that is not negative. If that holds for the first
    blocks of all tensors with the scale last, and not with the scale first, the file is refused.
    """
    samples = [_sample(data, tensor) for tensor in tensors if tensor.type.id == Q2_0.id]
    if not samples or all(_ternary(blocks[:, :2], blocks[:, 2:]) for blocks in samples):
        return
    if all(_ternary(blocks[:, -2:], blocks[:, :-2]) for blocks in samples):
        raise LayoutMismatchError(
            "the blocks of type id 42 make sense only with the scale after the codes, an order that "
            "llama.cpp and Prism files do not have; convert the model with llama.cpp's tools instead"
        )


def _sample(data: memoryview, tensor: Tensor) -> NDArray[np.uint8]:
    size = tensor.type.nbytes
    count = min(SAMPLED_BLOCKS, tensor.nbytes // size)
    return np.frombuffer(data, np.uint8, count * size, tensor.start).reshape(count, size)


def _ternary(scales: NDArray[np.uint8], codes: NDArray[np.uint8]) -> bool:
    values = np.ascontiguousarray(scales).view("<f2")
    threes = codes & (codes >> 1) & 0x55  # both bits of a two-bit code set
    return bool((np.isfinite(values) & (values >= 0)).all() and not threes.any())
