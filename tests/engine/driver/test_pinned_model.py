from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from engine.catalogue import Conversation
from engine.driver.pinned_model import pinned_model
from engine.errors import InvalidInputError

MODEL = Path(__file__).absolute()
SHA256 = "ab" * 32
SWIFT = "Swift-Bonsai-2-PQ2_0"


def given(**values: object) -> Namespace:
    """Parsed options."""
    names = ("manifest", "catalogue", "model", "bytes", "sha256")
    return Namespace(**{**dict.fromkeys(names), **values})


def test_by_manifest(tmp_path: Path) -> None:
    """Its name and chat template are all that is said of the model."""
    path = tmp_path / "m.toml"
    path.write_text(
        f'schema = 1\npath = "m.gguf"\nbytes = 7\nsha256 = "{SHA256}"\nname = "mine"\nchat_template = "x"\n'
    )
    model = pinned_model(given(manifest=path))
    assert (model.pin.path, model.pin.nbytes, model.pin.sha256) == (tmp_path / "m.gguf", 7, SHA256)
    assert (model.name, model.conversation) == ("mine", Conversation(chat_template="x"))


def test_the_demo() -> None:
    """It needs nothing else; its manifest lies in the package."""
    model = pinned_model(given(demo=True))
    assert model.pin.path.is_absolute()
    assert model.pin.path.read_bytes()[:4] == b"GGUF"
    assert model.conversation == Conversation()


def test_by_catalogue() -> None:
    """Length and hash are the published ones, at the path given."""
    model = pinned_model(given(catalogue=SWIFT, model=MODEL))
    assert model.pin.path == MODEL
    assert (model.pin.nbytes, model.pin.sha256[:8]) == (7_206_168_928, "5912bb73")
    assert (model.name, model.conversation.context) == (SWIFT, 8192)


def test_by_length_and_hash() -> None:
    """Nothing else is said."""
    model = pinned_model(given(model=MODEL, bytes=7, sha256=SHA256))
    assert (model.pin.nbytes, model.name, model.conversation) == (7, None, Conversation())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "--manifest is needed"),
        ({"model": MODEL}, "--manifest is needed"),
        ({"catalogue": SWIFT}, "--model with --catalogue"),
        ({"catalogue": SWIFT, "model": MODEL, "bytes": 7}, "--manifest is needed"),
        ({"model": MODEL, "bytes": 7}, "--manifest is needed"),
        ({"manifest": Path("m"), "catalogue": SWIFT}, "--manifest and --catalogue exclude"),
        ({"manifest": Path("m"), "demo": True}, "--demo and --manifest exclude"),
        ({"model": MODEL, "demo": True}, "--demo and --model exclude"),
        ({"manifest": Path("m"), "model": MODEL}, "--manifest and --model exclude"),
        ({"manifest": Path("m"), "sha256": SHA256}, "--manifest and --sha256 exclude"),
        ({"catalogue": "Nobody-1B", "model": MODEL}, "no such name; it has .*Bonsai-8B-Q1_0"),
        ({"catalogue": SWIFT, "model": Path("m")}, "absolute"),
    ],
)
def test_what_names_no_model_or_two(values: dict[str, object], words: str) -> None:
    """One sentence that names the options."""
    with pytest.raises(InvalidInputError, match=words):
        pinned_model(given(**values))
