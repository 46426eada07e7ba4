"""`--mode tokenize`: the exact token ids of an input, from the verified header alone.

The whole file is hashed, but only a bounded part of its beginning is kept; no tensor is touched.
"""

from __future__ import annotations

from engine.driver.inputs import Prompt
from engine.driver.options import Options
from engine.driver.output import write_record
from engine.driver.progress import ProgressBar
from engine.errors import ContextError, InvalidInputError
from engine.gguf import MAX_HEADER_BYTES
from engine.metadata import Metadata
from engine.model import choose_template, resolve_context
from engine.tokenizer import Tokenizer
from engine.verified_metadata import read_metadata
from engine.vocabulary import Vocabulary


def tokenize(options: Options, prompt: Prompt) -> None:
    """Verify the file, encode or check the input, and write one record."""
    with ProgressBar("verifying") as bar:
        metadata = read_metadata(options.pin, options.memory_bytes or MAX_HEADER_BYTES, bar)
    tokens = _encode(prompt, metadata)
    context = options.context
    if context is None:
        context = resolve_context(metadata, metadata.string("general.architecture"), None)
    if len(tokens) + options.max_tokens > context:
        raise ContextError(len(tokens), options.max_tokens, context)
    write_record(
        {
            "type": "tokenization",
            "token_ids": tokens,
            "token_count": len(tokens),
            "context": context,
            "reserved_output_tokens": options.max_tokens,
            **prompt.describe(),
            "model": {
                "sha256": options.pin.sha256,
                "bytes": options.pin.nbytes,
                "architecture": metadata.string("general.architecture", None),
                "name": metadata.string("general.name", ""),
            },
        }
    )


def _encode(prompt: Prompt, metadata: Metadata) -> list[int]:
    if not isinstance(prompt.content, tuple):
        return prompt.encode(Tokenizer.from_metadata(metadata), choose_template(metadata, None))
    vocabulary = Vocabulary.from_metadata(metadata)  # exact ids need no tokenizer that we support
    for token in prompt.content:
        if token >= vocabulary.size:
            raise InvalidInputError(
                f"token id {token} is outside the vocabulary of {vocabulary.size} tokens", "tokens"
            )
    return list(prompt.content)
