"""The model that a command measures: which file, what results call it, and the engine that runs it.

A shape with random weights by name, or any model by its manifest. The options that all commands share are
declared here too.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.models import DEFAULT_FOLDER, TYPES, ensure_model, released_folded
from benchmarks.shapes import SHAPES
from engine.gguf import parse_header
from engine.kernels import KERNEL_NAMES, default_threads, kernel_name
from engine.layout import prove_layout
from engine.manifest import Manifest, read_manifest
from engine.memory_budget import default_memory_bytes
from engine.model import DEFAULT_ACTIVATION_BITS, Model, load_model

HEADER_BYTES = 64 << 20  # enough for any header that `models` writes or that is released


@dataclass(frozen=True)
class Subject:
    """A model file. `weight_bytes` are read for every decoded token: all but the rows of an embedding."""

    model: str
    type: str  # of most of its bytes
    folded: bool
    manifest: Manifest
    architecture: str
    weight_bytes: int
    vocabulary: int

    @property
    def path(self) -> Path:
        """The file."""
        return self.manifest.pin.path

    def record(self) -> dict[str, object]:
        """What results say of it."""
        return {
            "model": self.model,
            "type": self.type,
            "folded": self.folded,
            "architecture": self.architecture,
            "file_bytes": self.manifest.pin.nbytes,
            "weight_bytes": self.weight_bytes,
        }


@dataclass(frozen=True)
class EngineOptions:
    """How the engine computes."""

    threads: int
    kernel: str
    bits: int

    def load(self, subject: Subject, context: int | None) -> Model:
        """The model for sequences of up to `context` tokens, or as many as the engine takes by default."""
        return load_model(
            subject.manifest.pin,
            memory_bytes=default_memory_bytes(subject.manifest.pin.nbytes),
            context=context,
            activation_bits=self.bits,
            threads=self.threads,
            kernel=self.kernel,
            chat_template=subject.manifest.chat_template,
        )


def add_subject_options(parser: argparse.ArgumentParser) -> None:
    """Options that say which model is measured."""
    group = parser.add_argument_group("what is measured")
    group.add_argument("--model", choices=SHAPES, default="1.7b", help="shape, with random weights (1.7b)")
    group.add_argument("--type", choices=TYPES, default="PQ2_0", help="storage type of its matrices (PQ2_0)")
    group.add_argument(
        "--folding",
        choices=("auto", "on", "off"),
        default="auto",
        help="whether 27b has Hadamard-folded weights (auto: as released, PQ2_0 and PTQ1_0 have)",
    )
    group.add_argument(
        "--folder",
        type=Path,
        default=DEFAULT_FOLDER,
        help=f"where model files are written once and kept ({DEFAULT_FOLDER})",
    )
    group.add_argument("--manifest", type=Path, help="measure the model that this manifest pins instead")


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Options that say how the engine computes."""
    group = parser.add_argument_group("how")
    group.add_argument("--threads", type=count, default=default_threads(), help="threads (one a processor)")
    group.add_argument(
        "--kernel", help=f"one of {', '.join(KERNEL_NAMES)} (PRISM_KERNEL, or else the last of them)"
    )
    group.add_argument(
        "--bits",
        type=int,
        choices=(8, 16),
        default=DEFAULT_ACTIVATION_BITS,
        help=f"precision of activations ({DEFAULT_ACTIVATION_BITS})",
    )


def count(text: str) -> int:
    """A positive number of something, for argparse."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def open_subject(options: argparse.Namespace) -> Subject:
    """The model that the options name; a shape's file is written if it is not there."""
    name, path = options.model, options.manifest
    if path is None:
        shape, kind = SHAPES[name], TYPES[options.type]
        folded = released_folded(shape, kind) if options.folding == "auto" else options.folding == "on"
        path = ensure_model(shape, kind, folded, options.folder)
    manifest = read_manifest(path)
    pin = manifest.pin
    with pin.path.open("rb") as file:
        header = parse_header(file.read(HEADER_BYTES), pin.nbytes)
    tensors = prove_layout(header, pin.nbytes, None)
    sizes = Counter[str]()
    for tensor in tensors.values():
        sizes[tensor.type.name] += tensor.nbytes
    unread = tensors["token_embd.weight"].nbytes if "output.weight" in tensors else 0
    return Subject(
        model=name if options.manifest is None else manifest.name or pin.path.stem,
        type=sizes.most_common(1)[0][0],
        folded="prism.hadamard.version" in header.metadata,
        manifest=manifest,
        architecture=header.metadata.string("general.architecture"),
        weight_bytes=sizes.total() - unread,
        vocabulary=len(header.metadata.strings("tokenizer.ggml.tokens")),
    )


def engine_options(options: argparse.Namespace) -> EngineOptions:
    """The engine's options; raises InvalidInputError for a kernel that is not there."""
    return EngineOptions(options.threads, kernel_name(options.kernel), options.bits)


def token_ids(subject: Subject, length: int, seed: int = 0) -> list[int]:
    """Any tokens; the same for the same arguments."""
    ids: list[int] = np.random.default_rng(seed).integers(0, subject.vocabulary, length).tolist()
    return ids
