"""docs/library.md: its examples run and print what it shows, and its signatures are those of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from deploy.paths import ROOT
from engine import prompt_input, sampling, token_input, tokenization
from engine.bpe import Bpe
from engine.runtime import Runtime
from engine.special_tokens import SpecialTokens
from engine.text_output import Utf8Output
from engine.text_session import TextOutputSession
from engine.tokenizer import Tokenizer
from tests.models import model_path

PAGE = (ROOT / "docs" / "library.md").read_text("utf-8")
EXAMPLE_MODEL = "/models/trained-qwen35-pq2_0-had.gguf"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)

OWNERS: dict[str, Any] = {
    "Bpe": Bpe, "Runtime": Runtime, "SpecialTokens": SpecialTokens, "TextOutputSession": TextOutputSession,
    "Tokenizer": Tokenizer, "Utf8Output": Utf8Output, "prompt_input": prompt_input,
    "token_input": token_input, "Sampler": sampling.Sampler, "TokenBudget": tokenization.TokenBudget,
    "TokenizationSession": tokenization.TokenizationSession,
}  # fmt: skip
# What a page about these names must at least have: a signature of each.
NAMES = {
    *("TokenizationSession.load", "TokenizationSession.encode", "TokenizationSession.validate_tokens"),
    *("TextTokenizationPolicy", "TokenBudget", "validate_tokens", "TextOutputSession.load"),
    *("Utf8Output.push", "Utf8Output.finish", "SpecialTokens.generation", "Sampler.clone"),
    *("Runtime.generate_sampled", "Runtime.generate_sampled_until", "prompt_input.read_prompt"),
    *("token_input.read_tokens", "Bpe.encode_piece", "Bpe.encode_pieces", "Tokenizer.encode"),
    "Tokenizer.encode_with_special_tokens",
}


def documented() -> dict[str, str]:
    """Every signature of the page by the name it is of."""
    return dict(re.findall(r"^- `([\w.]+)(\(.*?\))`(?=[:\n])", PAGE, re.MULTILINE))


def signature_of(name: str) -> str:
    """The signature of a name in the code, without types."""
    owner, _, method = name.rpartition(".")
    if owner:
        thing = getattr(OWNERS[owner], method)
    else:
        thing = getattr(tokenization, name, None) or getattr(sampling, name)
    signature = inspect.signature(thing)
    empty = inspect.Parameter.empty
    parameters = [
        one.replace(annotation=empty) for one in signature.parameters.values() if one.name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=empty))


def test_signatures() -> None:
    """Each documented signature is the code's, and the page has all the names that it must have."""
    found = documented()
    assert found.keys() >= NAMES
    assert found == {name: signature_of(name) for name in found}


def test_every_section_has_an_example() -> None:
    """Under each heading of a name there is a program and what it prints."""
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert len(sections) >= 12
    for section in sections:
        assert [kind for kind, _ in BLOCK.findall(section)] == ["python", "text"], section[:40]


def test_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """The page's programs in order, on the model that it names, print what the page shows after each."""
    blocks = BLOCK.findall(PAGE)
    assert [kind for kind, _ in blocks] == ["python", "text"] * (len(blocks) // 2)
    path = repr(str(model_path(Path(EXAMPLE_MODEL).stem)))
    names: dict[str, Any] = {}
    for (_, program), (_, shown) in zip(blocks[::2], blocks[1::2], strict=True):
        exec(compile(program.replace(f'"{EXAMPLE_MODEL}"', path), "docs/library.md", "exec"), names)
        assert capsys.readouterr().out == shown
