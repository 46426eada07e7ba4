"""Facts about a GGUF file for people to read, one a line, whether or not this engine can run it."""

from __future__ import annotations

from collections import Counter

from engine.artifact import Pin
from engine.catalogue import find_published
from engine.chat import recognise
from engine.errors import ArtifactError, MetadataError, UnsupportedTemplateError
from engine.gguf import Header
from engine.layout import Tensor, prove_layout, refuse_unknown_contracts
from engine.metadata import Metadata, shown
from engine.model import GRAPHS
from engine.tensor_types import Q2_0, TENSOR_TYPES


def describe_file(pin: Pin, header: Header) -> list[str]:
    """Lines of the form "name: fact". Text out of the file is quoted and escaped."""
    metadata = header.metadata
    published = find_published(pin.nbytes, pin.sha256)
    tensors: dict[str, Tensor] = {}
    layout = "proved by the offsets"
    try:
        tensors = prove_layout(header, pin.nbytes, None)
    except ArtifactError as error:
        layout = f"refused: {error}"
    facts = {
        "length": f"{pin.nbytes} bytes",
        "SHA-256": pin.sha256,
        "published as": published.name if published else "no file that this program knows",
        "format": f"GGUF version {header.version}, {len(metadata)} metadata keys",
        "architecture": _architecture(metadata),
        "name": _text(metadata, "general.name"),
        "tensors": str(len(header.tensors)),
        "types": _types(header, tensors),
        "layout": layout,
        "contracts": _contracts(metadata),
        "vocabulary": _vocabulary(metadata),
        "chat template": _chat_template(metadata),
    }
    return [f"{name}: {fact}" for name, fact in facts.items()]


def _text(metadata: Metadata, key: str) -> str:
    try:
        return shown(metadata.string(key))
    except MetadataError as error:
        return f"none ({error})" if key in metadata else "none"


def _architecture(metadata: Metadata) -> str:
    for known in GRAPHS:
        if _text(metadata, "general.architecture") == shown(known):
            return f"{known} (supported)"
    supported = ", ".join(GRAPHS)
    return f"{_text(metadata, 'general.architecture')} (not supported; there are graphs for {supported})"


def _types(header: Header, tensors: dict[str, Tensor]) -> str:
    """Types with the number of tensors that have them, the commonest first."""
    names: Counter[str] = Counter()
    for info in header.tensors:
        kind = tensors[info.name].type if tensors else TENSOR_TYPES.get(info.type_id)
        if kind is None:
            names[f"type {info.type_id} (not supported)"] += 1
        elif kind.id == Q2_0.id:
            group = f", groups of {kind.block}" if tensors else ""
            names[f"{kind.name} (id {kind.id}{group})"] += 1
        else:
            names[f"{kind.name} (id {kind.id})"] += 1
    return ", ".join(f"{count} {name}" for name, count in names.most_common()) or "none"


def _contracts(metadata: Metadata) -> str:
    try:
        refuse_unknown_contracts(metadata)
    except ArtifactError as error:
        return f"refused: {error}"
    return "prism.hadamard" if any(key.startswith("prism.") for key in metadata) else "none"


def _vocabulary(metadata: Metadata) -> str:
    try:
        count = len(metadata.strings("tokenizer.ggml.tokens", []))
    except MetadataError as error:
        return f"none ({error})"
    pre = _text(metadata, "tokenizer.ggml.pre")
    return f"{count} tokens, model {_text(metadata, 'tokenizer.ggml.model')}, pre-tokenizer {pre}"


def _chat_template(metadata: Metadata) -> str:
    if "tokenizer.chat_template" not in metadata:
        return "none"
    try:
        return recognise(metadata.string("tokenizer.chat_template")).name
    except (MetadataError, UnsupportedTemplateError) as error:
        return f"none ({error})"
