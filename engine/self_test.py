"""Proves on this machine that a kernel computes by the contract: a known model gives its known answer.

The embedded model and receipts of one short answer of it come with the package. Bits do not depend on
machine, kernel or threads, so the answer and its last logits must come out as they were recorded; a kernel
or a processor for which they do not would give wrong answers with any model.
"""

from __future__ import annotations

from engine.chat import encode_chat
from engine.chat.messages import ChatOptions, Message
from engine.comparison import Comparison, Difference
from engine.demo import manifest_path, receipt_path
from engine.errors import EngineFaultError
from engine.manifest import read_manifest
from engine.model import Model, load_model
from engine.receipt import read_receipt
from engine.runtime import GenerationOptions, Runtime
from engine.sampler_settings import sampler_from
from engine.witness import Witness

QUESTION = "Tell me a story about an owl."
MEMORY_BYTES = 1 << 26


def check_kernel(kernel: str | None, threads: int | None, activation_bits: int) -> str:
    """Compute the known answer with a kernel (None: the best), and return the kernel's name.

    Raises `EngineFaultError` if it comes out differently, and the errors of `load_model`.
    """
    model = load_model(
        read_manifest(manifest_path()).pin,
        memory_bytes=MEMORY_BYTES,
        activation_bits=activation_bits,
        threads=threads,
        kernel=kernel,
    )
    difference = _difference(model, activation_bits)
    if difference is not None:
        place = "" if difference.index is None else f" {difference.index}"
        raise EngineFaultError(
            f"the self-test failed: kernel {model.kernels.name} at {activation_bits} bits differs from the "
            f"contract in {difference.part}{place}; choose another kernel"
        )
    return model.kernels.name


def _difference(model: Model, activation_bits: int) -> Difference | None:
    receipt = read_receipt(receipt_path(activation_bits))
    assert model.chat is not None
    rendered = model.chat.render([Message("user", QUESTION)], ChatOptions(enable_thinking=False))
    prompt = encode_chat(model.tokenizer, rendered).tokens
    settings = receipt.settings
    witness = Witness(sampler_from(settings.sampling, prompt=prompt))
    comparison = Comparison(receipt, prompt)
    runtime = Runtime(
        model.decoder,
        checkpoint_bytes=model.decoder.checkpoint_bytes,
        masked=sorted(model.tokenizer.vocabulary.unused),
    )
    options = GenerationOptions(settings.max_tokens, settings.stop_tokens)
    completion = runtime.generate_sampled(prompt, options, witness, on_token=comparison.on_token)
    return comparison.difference(completion, witness)
