from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

import engine
from engine.chat.recognition import TEMPLATES, recognise
from engine.errors import UnsupportedTemplateError
from engine.gguf import parse_header
from tests.vocabularies import DATA, real_metadata

ORIGINALS: dict[str, str] = json.loads((DATA / "chat" / "templates.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(ORIGINALS))
def test_known_templates(name: str) -> None:
    """The text of each original template is recognised as its renderer."""
    assert recognise(ORIGINALS[name]).name == name


def test_templates_inside_files() -> None:
    """Templates read out of real model files are recognised."""
    smollm2 = real_metadata("smollm2").string("tokenizer.chat_template")
    assert recognise(smollm2).name == "smollm2"
    data = (DATA / "models" / "tiny-qwen3-q1_0.gguf").read_bytes()
    tiny = parse_header(data, len(data)).metadata.string("tokenizer.chat_template")
    assert recognise(tiny).name == "chatml"
    data = (Path(engine.__file__).parent / "demo" / "model.gguf").read_bytes()
    embedded = parse_header(data, len(data)).metadata.string("tokenizer.chat_template")
    assert recognise(embedded).name == "qwen3.5"


@pytest.mark.parametrize("change", ["{} ", "{}\n", "{{# note #}}{}", "{}{{{{ 1 }}}}"])
def test_changed_templates(change: str) -> None:
    """Any change to a template, however small, makes it unknown; its digest is named, its text is not."""
    text = change.format(ORIGINALS["qwen3"])
    with pytest.raises(UnsupportedTemplateError) as caught:
        recognise(text)
    message = str(caught.value)
    assert sha256(text.encode()).hexdigest() in message
    assert "--chat-template NAME" in message
    assert all(name in message for name in TEMPLATES)
    assert "{%" not in message


def test_malicious_template_is_never_evaluated() -> None:
    """A template that would break or run code if evaluated is only hashed, and does no harm by name."""
    attack = (
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for x in range(10**12) %}{% endfor %}{% nonsense"
    )
    with pytest.raises(UnsupportedTemplateError, match="not a known one"):
        recognise(attack)
    assert recognise(attack, "chatml") is TEMPLATES["chatml"]


def test_explicit_names() -> None:
    """A name wins over the file's template, which may be missing; unknown names list the known ones."""
    for name, template in TEMPLATES.items():
        assert recognise(None, name) is template
        assert template.name == name
    assert recognise(ORIGINALS["qwen3"], "bonsai").name == "bonsai"
    with pytest.raises(UnsupportedTemplateError, match="no chat template 'qwen9'; available are qwen3, "):
        recognise(ORIGINALS["qwen3"], "qwen9")


def test_no_template_at_all() -> None:
    """A file without template needs a name, and the message says how to give it."""
    with pytest.raises(
        UnsupportedTemplateError, match="has no chat template; choose one with --chat-template"
    ):
        recognise(None)


def test_every_format_is_documented() -> None:
    """The table of formats in the documentation lists exactly the built-in ones."""
    lines = (DATA.parents[1] / "docs" / "chat.md").read_text("utf-8").splitlines()
    start = lines.index("## Formats") + 4
    names = [line.split("|")[1].strip().strip("`") for line in lines[start : start + len(TEMPLATES)]]
    assert names == list(TEMPLATES)
