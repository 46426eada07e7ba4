"""Model files of real shapes with random weights: written once into a folder, found again later.

Beside each file lies a manifest with its length and SHA-256, computed while it was written; a file whose
manifest is there is not written again, and the engine checks it against the manifest whenever it loads it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.blocks import DRAWS, fill
from benchmarks.errors import BenchmarkError
from benchmarks.gguf_file import Key, header, write_gguf
from benchmarks.shapes import Shape
from benchmarks.tensors import TensorPlan, is_folded, plan_tensors
from benchmarks.vocabulary import vocabulary_keys
from engine.artifact import Pin
from engine.manifest import Manifest, format_manifest, read_manifest
from engine.tensor_types import BF16, PQ2_0, PTQ1_0, TensorType

DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "prism-benchmarks"
TYPES = {kind.name: kind for kind in DRAWS if kind is not BF16}
FILE_TYPES = {"Q4_1": 3, "Q8_0": 7, "Q1_0": 40, "Q2_0": 41, "PQ2_0": 141, "PTQ1_0": 143}
CHAT_TEMPLATES = {"qwen3": "qwen3", "qwen35": "qwen3.5"}
SPARE_BYTES = 1 << 30  # disk space to leave free


def released_folded(shape: Shape, kind: TensorType) -> bool:
    """Whether the released model of this shape and type is a folded one (Bonsai 2)."""
    return shape.hadamard_block is not None and kind in (PQ2_0, PTQ1_0)


def ensure_model(shape: Shape, kind: TensorType, folded: bool, folder: Path) -> Path:
    """The manifest of the model, which is written first if it is not there yet.

    Raises BenchmarkError if the shape cannot be folded or the disk has no room.
    """
    if folded and shape.hadamard_block is None:
        raise BenchmarkError(f"models of shape {shape.name} have no folded form; use --folding off")
    name = f"{shape.name}-{kind.name}{'-folded' if folded else ''}"
    path = folder.absolute() / f"{name}.gguf"
    manifest = path.with_suffix(".toml")
    if manifest.exists() and path.exists() and read_manifest(manifest).pin.nbytes == path.stat().st_size:
        return manifest
    plans = plan_tensors(shape, kind, folded)
    keys = _keys(shape, kind, plans, folded)
    path.parent.mkdir(parents=True, exist_ok=True)
    size = len(header(keys, plans)) + sum(plan.nbytes for plan in plans)
    if size + SPARE_BYTES > shutil.disk_usage(path.parent).free:
        raise BenchmarkError(
            f"{name} takes {size / 1e9:.1f} GB, more than {path.parent} has free; name another --folder"
        )
    partial = path.with_suffix(".partial")
    try:
        length, digest = write_gguf(partial, keys, plans, fill, _Progress(name, size))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    pinned = Manifest(Pin(path, length, digest), name, CHAT_TEMPLATES[shape.architecture])
    manifest.write_text(format_manifest(pinned, path.parent, ["Random weights, for measurements"]), "utf-8")
    return manifest


def _keys(shape: Shape, kind: TensorType, plans: list[TensorPlan], folded: bool) -> list[Key]:
    keys: list[Key] = [
        ("general.architecture", "string", shape.architecture),
        ("general.name", "string", f"Random weights, {shape.name} {kind.name}"),
        ("general.file_type", "u32", FILE_TYPES[kind.name]),
        ("general.quantization_version", "u32", 2),
    ]
    keys += ((f"{shape.architecture}.{name}", kind, value) for name, kind, value in shape.declared())
    keys += vocabulary_keys(shape.vocabulary)
    if folded:
        assert shape.hadamard_block is not None
        keys += _contract(shape.hadamard_block, plans)
    return keys


def _contract(block: int, plans: list[TensorPlan]) -> list[Key]:
    """The `prism.hadamard.*` keys over all matrices that a released file folds."""
    folded = [plan for plan in plans if is_folded(plan.name)]
    widths = sorted({plan.shape[0] for plan in folded})
    signs = np.random.default_rng(block).choice([-1, 1], sum(widths))
    values = (
        ("version", "u32", 1),
        ("block_size", "u32", block),
        ("transform", "string", "normalized-sylvester-walsh-hadamard"),
        ("axis", "string", "input-last-dimension"),
        ("sign_mode", "string", "explicit"),
        ("sign_widths", "[i32]", widths),
        ("sign_values", "[i32]", signs),
        ("weight_names", "[string]", [plan.name for plan in folded]),
        ("inverse_weight_names", "[string]", ["token_embd.weight"]),
        ("gdn_v_grouped", "bool", True),
    )
    return [(f"prism.hadamard.{name}", kind, value) for name, kind, value in values]


class _Progress:
    """Says every few seconds how far a file is."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size = name, size
        self._done, self._said = 0, time.monotonic()
        print(f"writing {name}, {size / 1e9:.2f} GB ...", file=sys.stderr)

    def __call__(self, count: int) -> None:
        """`count` more bytes are written."""
        self._done += count
        if time.monotonic() - self._said > 5:
            self._said = time.monotonic()
            done = f"{self._done / 1e9:.1f} of {self._size / 1e9:.1f} GB"
            print(f"writing {self._name}: {done}", file=sys.stderr)
