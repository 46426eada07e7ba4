from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.models import TYPES, ensure_model, released_folded
from benchmarks.shapes import SHAPES
from engine.decoder import Step
from engine.kernels import KERNEL_NAMES
from engine.manifest import read_manifest
from engine.model import load_model
from engine.tensor_types import PQ2_0, PTQ1_0, Q1_0, Q2_0, TensorType

TINY = ("tiny-qwen3", "tiny-qwen35")


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
@pytest.mark.parametrize(("shape", "folded"), [(TINY[0], False), (TINY[1], False), (TINY[1], True)])
def test_loads_and_decodes(shape: str, folded: bool, kind: TensorType, folder: Path) -> None:
    """Every shape and type is a file that the engine loads, and whose logits are finite and of usual size."""
    manifest = read_manifest(ensure_model(SHAPES[shape], kind, folded, folder))
    model = load_model(
        manifest.pin,
        memory_bytes=1 << 30,
        kernel=KERNEL_NAMES[-1],
        threads=1,
        chat_template=manifest.chat_template,
    )
    state = model.decoder.new_state()
    model.decoder.evaluate([Step(state, [1, 2, 300], "none")])
    (logits,) = model.decoder.evaluate([Step(state, [7])])
    assert np.isfinite(logits).all()
    assert 0.3 < logits.std() < 3


def test_written_once(tmp_path: Path) -> None:
    """The manifest has the hash of the file; a second call writes nothing, a damaged pair is written anew."""
    shape = SHAPES["tiny-qwen3"]
    manifest = ensure_model(shape, Q1_0, False, tmp_path)
    pin = read_manifest(manifest).pin
    data = pin.path.read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (pin.nbytes, pin.sha256)
    stamp = pin.path.stat().st_mtime_ns
    assert ensure_model(shape, Q1_0, False, tmp_path) == manifest
    assert pin.path.stat().st_mtime_ns == stamp
    pin.path.write_bytes(data[:-1])
    ensure_model(shape, Q1_0, False, tmp_path)
    assert pin.path.read_bytes() == data
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".gguf", ".toml"]


def test_folded_as_released() -> None:
    """Of 27b the ternary Prism types are released folded, the others not; the small shapes never are."""
    large = SHAPES["27b"]
    assert [released_folded(large, kind) for kind in (PQ2_0, PTQ1_0, Q1_0, Q2_0)] == [
        True,
        True,
        False,
        False,
    ]
    assert not released_folded(SHAPES["8b"], PQ2_0)


def test_cannot_be_folded(tmp_path: Path) -> None:
    """A shape without a folded form is refused."""
    with pytest.raises(BenchmarkError, match="no folded form"):
        ensure_model(SHAPES["1.7b"], PQ2_0, True, tmp_path)


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file larger than the disk is refused before anything of it is written."""
    usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BenchmarkError, match=r"takes 0\.5 GB"):
        ensure_model(SHAPES["1.7b"], PQ2_0, False, tmp_path)
    assert not list(tmp_path.iterdir())
