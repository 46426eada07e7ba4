from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.artifact import Pin
from engine.errors import InvalidInputError
from engine.manifest import Manifest, format_manifest, read_manifest

DIGEST = "0123456789abcdef" * 4
LINES = {"schema": "1", "path": '"model.gguf"', "bytes": "1000", "sha256": f'"{DIGEST}"'}


def manifest(folder: Path, **changes: str | None) -> Path:
    """A manifest file with some lines changed, added or (None) left out."""
    lines = {**LINES, **changes}
    path = folder / "model.toml"
    path.write_text(
        "".join(f"{key} = {value}\n" for key, value in lines.items() if value is not None), "utf-8"
    )
    return path


def test_relative_path_starts_at_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative model path is resolved against the manifest's folder, not the working folder."""
    manifest(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    found = read_manifest(Path(tmp_path.name) / "model.toml")
    assert found == Manifest(Pin(tmp_path.parent / tmp_path.name / "model.gguf", 1000, DIGEST))


def test_all_keys(tmp_path: Path) -> None:
    """An absolute path and the optional keys are taken as they are."""
    absolute = tmp_path / "elsewhere" / "m.gguf"
    path = manifest(tmp_path, path=f"'{absolute}'", name='"Bonsai"', chat_template='"qwen3"')
    assert read_manifest(path) == Manifest(Pin(absolute, 1000, DIGEST), "Bonsai", "qwen3")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": None}, "no key 'path'"),
        ({"bytes": None}, "no key 'bytes'"),
        ({"sha256": None}, "no key 'sha256'"),
        ({"schema": None}, "no key 'schema'"),
        ({"schema": "2"}, "schema 2"),
        ({"schema": '"1"'}, "an integer as 'schema'"),
        ({"bytes": "true"}, "an integer as 'bytes'"),
        ({"bytes": "1e3"}, "an integer as 'bytes'"),
        ({"bytes": '"1000"'}, "an integer as 'bytes'"),
        ({"bytes": "0"}, "must be positive"),
        ({"bytes": "-5"}, "must be positive"),
        ({"path": "7"}, "a string as 'path'"),
        ({"path": '""'}, "an empty 'path'"),
        ({"path": '"a\\u0000b"'}, "must be absolute|NUL"),
        ({"sha256": f'"{DIGEST.upper()}"'}, "lower-case"),
        ({"sha256": f'"{DIGEST[1:]}"'}, "64"),
        ({"name": '""'}, "an empty 'name'"),
        ({"chat_template": "1"}, "a string as 'chat_template'"),
        ({"sha_256": '"x"'}, "unknown key 'sha_256'"),
        ({"model": "{}"}, "unknown key 'model'"),
    ],
)
def test_refused(tmp_path: Path, changes: dict[str, str | None], words: str) -> None:
    """Missing, unknown, mistyped and impossible keys are refused by name."""
    with pytest.raises(InvalidInputError, match=words) as caught:
        read_manifest(manifest(tmp_path, **changes))
    assert caught.value.field == "manifest"


@pytest.mark.parametrize(
    "content",
    [
        b"schema = 1\nschema = 1\n",
        b"\xff",
        b"schema = ",
        b"a = " + b"[" * 30_000,
        b"a = " + b"9" * 10_000,
        b"#" * 70_000,
    ],
    ids=["twice", "not UTF-8", "not TOML", "deep", "long number", "large"],
)
def test_not_toml(tmp_path: Path, content: bytes) -> None:
    """Anything that is no small TOML file is one refusal, never another exception."""
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError):
        read_manifest(path)


def test_missing_manifest(tmp_path: Path) -> None:
    """A manifest that is not there, or is a folder, is named."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InvalidInputError, match=r"manifest .* cannot be read"):
            read_manifest(path)


def test_round_trip(tmp_path: Path) -> None:
    """A written manifest reads back; the model's path is relative where it can be; facts are comments."""
    inside = Manifest(Pin(tmp_path / "models" / 'a "b"\\c.gguf', 5, DIGEST), "na\x7fme\t\n", "qwen3")
    outside = Manifest(Pin(tmp_path.parent / "m.gguf", 5, DIGEST))
    for case in (inside, outside):
        text = format_manifest(case, tmp_path, ["a fact", "another"])
        assert text.startswith("# a fact\n# another\nschema = 1\n")
        path = tmp_path / "out.toml"
        path.write_text(text, "utf-8")
        assert read_manifest(path) == case
    assert 'path = "models/' in format_manifest(inside, tmp_path)
    assert 'path = "models/' not in format_manifest(inside)


@given(st.text(min_size=1))
def test_any_name_is_valid_toml(name: str) -> None:
    """Any Unicode text can be a name; a lone surrogate is refused."""
    case = Manifest(Pin(Path.cwd() / "m.gguf", 5, DIGEST), name)
    assert tomllib.loads(format_manifest(case, Path.cwd()))["name"] == name


def test_surrogates_are_refused(tmp_path: Path) -> None:
    """A path that is no Unicode cannot be written into a manifest."""
    with pytest.raises(InvalidInputError, match="Unicode"):
        format_manifest(Manifest(Pin(tmp_path / "a\udcff", 5, DIGEST)), tmp_path)
