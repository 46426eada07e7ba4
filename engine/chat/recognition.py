"""Which built-in renderer belongs to a model file: by the digest of its template, or by name.

The template's text is hashed and thrown away. An unknown one is refused rather than guessed at, so a file
cannot run code here, nor be given a prompt format that it was not trained on by accident.
"""

from __future__ import annotations

from hashlib import sha256

from engine.chat.chatml import ChatMl
from engine.chat.qwen3 import Qwen3
from engine.chat.qwen35 import Qwen35, Qwen38
from engine.chat.rendering import ChatTemplate
from engine.errors import UnsupportedTemplateError

SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

TEMPLATES: dict[str, ChatTemplate] = {
    template.name: template
    for template in (
        Qwen3("qwen3"),
        Qwen3("bonsai", never_thinks=True),
        Qwen35("qwen3.5"),
        Qwen35("qwen3.6", can_preserve=True),
        Qwen38(),
        ChatMl("smollm2", SMOLLM2_SYSTEM),
        ChatMl("chatml"),
        ChatMl("chatml-think", think_blocks=True),
    )
}

# SHA-256 of the template's UTF-8 text → name.
DIGESTS = {
    "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5": "qwen3",  # Qwen3-0.6B
    "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715": "qwen3.5",  # Qwen3.5-4B
    "e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259": "qwen3.6",  # Qwen3.6-35B-A3B
    "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041": "qwen3.8",  # Qwen3.8-27B
    "536a1598851ba1262b782178cbea22d23051dee2c81ed17ea85730bd62a43a8c": "qwen3.5",  # the embedded model
    "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788": "smollm2",  # SmolLM2-135M-Instruct
    # ChatML in one loop, no system message, no thinking: what tests and small models often carry.
    "e4d23a745486bd7121eecc27caa38266ef35c4e954d6c45bff840e25d246671a": "chatml",
}


def recognise(template: str | None, name: str | None = None) -> ChatTemplate:
    """The renderer called `name`, or else the one known for the file's `template` text."""
    available = f"available are {', '.join(TEMPLATES)}"
    if name is not None:
        if name not in TEMPLATES:
            raise UnsupportedTemplateError(f"there is no chat template {name!r}; {available}")
        return TEMPLATES[name]
    if template is None:
        raise UnsupportedTemplateError(
            f"the model file has no chat template; choose one with --chat-template NAME, {available}"
        )
    digest = sha256(template.encode("utf-8")).hexdigest()
    if digest not in DIGESTS:
        raise UnsupportedTemplateError(
            f"the model file's chat template (SHA-256 {digest}) is not a known one; "
            f"choose a built-in one with --chat-template NAME, {available}"
        )
    return TEMPLATES[DIGESTS[digest]]
