"""Reads the prompt that the command line names and turns it into token ids.

Reading comes before the model is opened; encoding needs the model's tokenizer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from engine.chat import ChatTemplate, encode_chat
from engine.chat.messages import ChatOptions, Message
from engine.driver.options import InputSource, Options
from engine.errors import ContextError, InvalidInputError, UnsupportedTemplateError
from engine.paths import openable
from engine.prompt_input import read_prompt
from engine.receipt import EXACT_IDS, PromptPolicies
from engine.token_input import MAX_TOKENS, read_tokens
from engine.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """Text, or exact ids, with what the record says about it."""

    content: str | tuple[int, ...]
    options: Options

    def encode(self, tokenizer: Tokenizer, chat: ChatTemplate | None) -> list[int]:
        """The token ids; text goes through the policies of the command line, a question through `chat`."""
        if isinstance(self.content, tuple):
            return list(self.content)
        if self.options.question:
            if chat is None:
                raise UnsupportedTemplateError("the model has no known chat template to ask a question in")
            rendered = chat.render([Message("user", self.content)], ChatOptions(enable_thinking=False))
            return encode_chat(tokenizer, rendered).tokens
        return tokenizer.encode_with_special_tokens(
            self.content, self.options.special_input, self.options.insert_special
        )

    def policies(self) -> PromptPolicies:
        """How the input was taken."""
        if isinstance(self.content, tuple) or self.options.question:
            return EXACT_IDS
        return PromptPolicies("text", self.options.special_input, self.options.insert_special)

    def describe(self) -> dict[str, Any]:
        """The record's fields about the input."""
        if self.options.question:
            return {"input_mode": "question"}
        return {name: value for name, value in asdict(self.policies()).items() if value is not None}


def read_input(options: Options) -> Prompt:
    """The prompt; a list of ids must not be empty and must fit what the context allows."""
    source = options.source
    if source.kind in ("prompt", "tokens"):
        return Prompt(source.value, options)
    with _opened(source) as stream:
        if source.kind == "prompt_file":
            return Prompt(read_prompt(stream), options)
        ids = read_tokens(stream, MAX_TOKENS)
    if not ids:
        raise InvalidInputError("the token input is empty; at least one id is needed", "tokens_file")
    if len(ids) > options.prompt_allowance:
        raise ContextError(len(ids), options.max_tokens, options.prompt_allowance + options.max_tokens)
    return Prompt(tuple(ids), options)


@contextmanager
def _opened(source: InputSource) -> Iterator[BinaryIO]:
    """The named file or standard input; any failure to read it is a fault of the input."""
    flag = "--" + source.kind.replace("_", "-")
    try:
        if source.value == "-":
            if sys.stdin is None:  # the process was started without one
                raise InvalidInputError(f"{flag}: there is no standard input", source.kind)
            # Below the buffer, which would take more than what is read.
            yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        else:
            with openable(Path(str(source.value))).open("rb", buffering=0) as stream:
                yield stream
    except OSError as error:
        raise InvalidInputError(f"{flag}: {error.strerror or error}", source.kind) from None
