"""A verified file becomes a model: graph, tokenizer, chat template and identity.

Nothing is parsed before the digest matched. What memory the model will hold is known from its length,
header and the backend, and is checked against the budget before it is allocated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from engine.artifact import Pin, Progress, read_verified
from engine.chat import ChatTemplate, recognise
from engine.decoder import Decoder
from engine.errors import InvalidInputError, UnsupportedArchitectureError, UnsupportedTemplateError
from engine.gguf import Metadata, parse_header
from engine.graphs import llama, qwen3, qwen35
from engine.graphs.graph import Graph
from engine.hadamard import read_contract
from engine.kernels import Kernels, choose_kernels, default_threads, kernel_name
from engine.layout import prove_layout, refuse_unknown_contracts
from engine.tokenizer import Tokenizer
from engine.weights import Weights

CONTRACT = "canon-2"
DEFAULT_ACTIVATION_BITS = 16
DEFAULT_CONTEXT = 4096

GRAPHS: dict[str, Callable[[Metadata, Weights, int, int], Graph]] = {
    "llama": llama.build,
    "qwen3": qwen3.build,
    "qwen35": qwen35.build,
}


@dataclass(frozen=True)
class Identity:
    """Which bytes a model is, and by which graph and arithmetic it is computed."""

    sha256: str
    nbytes: int
    architecture: str
    name: str  # general.name, may be empty
    contract: str

    def __str__(self) -> str:
        return f"{self.sha256}:{self.contract}"


@dataclass(frozen=True)
class Model:
    """Everything that a request needs; `chat` is None if no built-in renderer fits the file's template.

    `template_sha256` is the digest of the template's text inside the file, None if there is none. `data` is
    the memory that the file was read to, where weights lie as the backend arranged them.
    """

    identity: Identity
    decoder: Decoder
    tokenizer: Tokenizer
    chat: ChatTemplate | None
    kernels: Kernels
    template_sha256: str | None
    data: memoryview


def load_model(
    pin: Pin,
    *,
    memory_bytes: int,
    context: int | None = None,
    activation_bits: int = DEFAULT_ACTIVATION_BITS,
    threads: int | None = None,
    kernel: str | None = None,
    chat_template: str | None = None,
    progress: Progress | None = None,
) -> Model:
    """Read, verify and build the model that `pin` names.

    `memory_bytes` bounds the file's bytes in memory together with what the backend makes of them; what is
    left over lets the NumPy backend keep expanded weights. `context` defaults to the model's own, at most
    4096 tokens. `chat_template` names a renderer for a file whose template is not a published one.
    Raises the errors of `artifact`, `gguf`, `layout` and of the graphs.
    """
    if activation_bits not in (8, 16):
        raise InvalidInputError(f"activation bits are {activation_bits}; expected 8 or 16", "activation_bits")
    if threads is not None and not 1 <= threads <= 256:
        raise InvalidInputError(f"threads are {threads}; expected 1 to 256", "threads")
    kernel_name(kernel)
    file = read_verified(pin, memory_bytes, progress)
    header = parse_header(file.data, pin.nbytes)
    metadata = header.metadata
    refuse_unknown_contracts(metadata)
    architecture = metadata.string("general.architecture")
    build = GRAPHS.get(architecture)
    if build is None:
        raise UnsupportedArchitectureError(
            f"general.architecture is {architecture!r}; implemented: {', '.join(GRAPHS)}"
        )
    tensors = prove_layout(header, pin.nbytes, file.data)
    length = resolve_context(metadata, architecture, context)
    kernels = choose_kernels(kernel, threads or default_threads(), activation_bits, memory_bytes - pin.nbytes)
    contract = read_contract(metadata, {name: tensor.shape for name, tensor in tensors.items()})
    tokenizer = Tokenizer.from_metadata(metadata)
    weights = Weights(tensors, file.data, kernels, contract)
    graph = build(metadata, weights, tokenizer.vocabulary.size, length)
    identity = Identity(
        pin.sha256,
        pin.nbytes,
        architecture,
        metadata.string("general.name", ""),
        f"{architecture}:{CONTRACT}/{activation_bits}",
    )
    decoder = Decoder(graph, str(identity), length)
    chat = choose_template(metadata, chat_template)
    template_sha256 = embedded_template_sha256(metadata)
    return Model(identity, decoder, tokenizer, chat, kernels, template_sha256, file.data)


def resolve_context(metadata: Metadata, architecture: str, context: int | None) -> int:
    """The context to use, in tokens: the one asked for, or the model's up to 4096."""
    longest = metadata.uint(f"{architecture}.context_length")
    if context is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 1 <= context <= longest:
        raise InvalidInputError(f"context {context} is not between 1 and the model's {longest}", "context")
    return context


def embedded_template_sha256(metadata: Metadata) -> str | None:
    """The SHA-256, in hex, of the file's chat template as UTF-8; None if it has none."""
    template = metadata.string("tokenizer.chat_template", "")
    return hashlib.sha256(template.encode("utf-8")).hexdigest() if template else None


def choose_template(metadata: Metadata, name: str | None) -> ChatTemplate | None:
    """The renderer by name or by the file's template; a file that none fits still serves plain text."""
    template = metadata.string("tokenizer.chat_template", "")
    try:
        return recognise(template or None, name)
    except UnsupportedTemplateError:
        if name is not None:
            raise
        return None
