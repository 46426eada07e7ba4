"""Loads the model of a command line, with a progress bar, and says which model it was."""

from __future__ import annotations

from typing import Any

from engine.capabilities import package_version
from engine.driver.options import Options
from engine.driver.progress import ProgressBar
from engine.huge_pages import huge_page_bytes
from engine.memory_budget import default_memory_bytes
from engine.model import Model, load_model
from engine.receipt import ComputedBy, ModelUsed


def load(options: Options) -> Model:
    """The whole model, within the stated budget or the default one."""
    with ProgressBar("verifying") as bar:
        return load_model(
            options.pin,
            memory_bytes=options.memory_bytes or default_memory_bytes(options.pin.nbytes),
            context=options.context,
            activation_bits=options.activation_bits,
            threads=options.threads,
            kernel=options.kernel,
            progress=bar,
        )


def model_used(model: Model) -> ModelUsed:
    """A receipt's part about the model."""
    identity = model.identity
    return ModelUsed(identity.sha256, identity.nbytes, identity.contract, model.decoder.context)


def computed_by(model: Model) -> ComputedBy:
    """A receipt's part about the implementation."""
    return ComputedBy(package_version(), model.kernels.name, model.kernels.threads)


def describe_model(model: Model) -> dict[str, Any]:
    """A record's fields about the model and how it is computed."""
    identity = model.identity
    return {
        "identity": str(identity),
        "sha256": identity.sha256,
        "bytes": identity.nbytes,
        "architecture": identity.architecture,
        "name": identity.name,
        "kernels": model.kernels.name,
        "threads": model.kernels.threads,
        "activation_bits": model.kernels.activation_bits,
        "huge_page_bytes": huge_page_bytes(),
    }
