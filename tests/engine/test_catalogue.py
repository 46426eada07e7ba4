from __future__ import annotations

import re

import pytest

from engine.catalogue import (
    Conversation,
    PublishedFile,
    find_published,
    parse_catalogue,
    published_file,
    published_files,
)
from engine.chat import TEMPLATES, ChatOptions, Message
from engine.errors import InvalidInputError
from tests.models import DATA

DOCUMENT = DATA.parents[1] / "docs" / "pin-a-model.md"
ENTRY = f'[[file]]\nname = "a"\nbytes = 7\nsha256 = "{"ab" * 32}"\n'


def test_entries_are_whole() -> None:
    """Every entry has a full hash and a length, and no two share a hash or a name."""
    files = published_files()
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.nbytes > 0 for file in files)
    assert len({file.sha256 for file in files}) == len({file.name for file in files}) == len(files)


def test_hash_and_length_identify() -> None:
    """Two files of one length differ by hash; a wrong length or hash finds nothing."""
    base = "3907dc1658db1f78a9826bf8d5bcb8dc65db0d466388937af57f2294fae62ec1"
    swift = "5912bb739217cf25b4283a098c7b893d9baff36bdf2e72d3dbf4cb999d5633d5"
    found = [find_published(7_206_168_928, sha256) for sha256 in (base, swift)]
    assert [file and file.name for file in found] == ["Ternary-Bonsai-2-27B-PQ2_0", "Swift-Bonsai-2-PQ2_0"]
    assert find_published(7_206_168_929, base) is None
    assert find_published(7_206_168_928, "0" * 64) is None


def test_the_swift_entry() -> None:
    """The one file that the Swift worker is for, with every setting that is known of it."""
    file = published_file("Swift-Bonsai-2-PQ2_0")
    assert (file.nbytes, file.sha256) == (
        7_206_168_928,
        "5912bb739217cf25b4283a098c7b893d9baff36bdf2e72d3dbf4cb999d5633d5",
    )
    assert file.conversation == Conversation(
        chat_template="qwen3.8",
        template_sha256="c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041",
        enable_thinking=True,
        reasoning_effort="xhigh",
        preserve_thinking=True,
        sampling="swift",
        stop_tokens=(248044, 248046, 248063, 248064, 248065),
        vocabulary_size=248_320,
        context=8192,
        model_bytes=8 * 1024**3,
        state_bytes=1024**3,
        checkpoint_bytes=1024**3,
        output_bytes=4 * 1024**2,
    )


@pytest.mark.parametrize(
    ("name", "template", "vocabulary"),
    [
        ("Bonsai-4B-Q1_0", "bonsai", None),
        ("Bonsai-8B-Q1_0", "bonsai", None),
        ("Ternary-Bonsai-8B-Q2_0_g64", "bonsai", None),
        ("Ternary-Bonsai-2-27B-PQ2_0", "qwen3.8", 248_320),
        ("Ternary-Bonsai-2-27B-PTQ1_0", "qwen3.8", 248_320),
        ("Swift-Bonsai-2-PTQ1_0", None, None),
    ],
)
def test_what_is_known_of_others(name: str, template: str | None, vocabulary: int | None) -> None:
    """The format of the small models, whose template no hash is known of, and of the second generation."""
    assert published_file(name).conversation == Conversation(template, vocabulary_size=vocabulary)


@pytest.mark.parametrize("file", published_files(), ids=lambda file: file.name)
def test_conversations_can_be_held(file: PublishedFile) -> None:
    """The renderer of an entry exists and takes the entry's wishes; its stops are inside its vocabulary."""
    said = file.conversation
    if said.chat_template is not None:
        options = ChatOptions(said.enable_thinking, said.reasoning_effort, said.preserve_thinking)
        assert TEMPLATES[said.chat_template].render([Message("user", "Hello")], options).segments
    assert said.template_sha256 is None or re.fullmatch("[0-9a-f]{64}", said.template_sha256)
    assert all(0 <= token < (said.vocabulary_size or 0) for token in said.stop_tokens)


def test_unknown_names() -> None:
    """The refusal lists the names that there are, and does not repeat what was asked for."""
    with pytest.raises(InvalidInputError, match=r"Bonsai-8B-Q1_0, .*Swift-Bonsai-2-PQ2_0") as caught:
        published_file("sentinel")
    assert "sentinel" not in str(caught.value)


def test_the_document_lists_all_names() -> None:
    """The names to give to --catalogue can be looked up."""
    listed = re.findall(r"^\| `([^`]+)` \| [\d,]+ \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert listed == [file.name for file in published_files()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = 1\nfiles = []\n", "unknown key 'files'"),
        ("schema = 1\n", "no key 'file'"),
        (f"schema = 2\n{ENTRY}", "schema 2"),
        (f'schema = "1"\n{ENTRY}', "type int as 'schema'"),
        ("schema = 1\nfile = [7]\n", "a file must be a table"),
        (f"schema = 1\n{ENTRY}length = 7\n", "unknown key 'length'"),
        ('schema = 1\n[[file]]\nname = "a"\nbytes = 7\n', "no key 'sha256'"),
        (f"schema = 1\n{ENTRY.replace('7', '7.0')}", "type int as 'bytes'"),
        (f"schema = 1\n{ENTRY}[file.conversation]\nthinking = true\n", "conversation of a .*'thinking'"),
        (f"schema = 1\n{ENTRY}[file.conversation]\nenable_thinking = 1\n", "type bool as 'enable_thinking'"),
        (f"schema = 1\n{ENTRY}[file.conversation]\nstop_tokens = [true]\n", "stop_tokens that are no integ"),
        ("schema =", "Invalid value"),
    ],
)
def test_catalogues_are_read_strictly(text: str, words: str) -> None:
    """Keys that are not known, missing ones and values of another type are errors."""
    with pytest.raises(ValueError, match=words):
        parse_catalogue(text)


def test_settings_are_optional() -> None:
    """An entry without a conversation has the empty one; stop tokens become a tuple."""
    (plain,) = parse_catalogue(f"schema = 1\n{ENTRY}")
    assert (plain.name, plain.nbytes, plain.conversation) == ("a", 7, Conversation())
    (file,) = parse_catalogue(f"schema = 1\n{ENTRY}[file.conversation]\nstop_tokens = [3, 1]\n")
    assert file.conversation == Conversation(stop_tokens=(3, 1))
