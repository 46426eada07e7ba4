from __future__ import annotations

import json
from hashlib import sha256

from engine.artifact import Pin
from engine.catalogue import find_published
from engine.demo import manifest_path
from engine.manifest import read_manifest
from tests.models import DATA


def test_the_manifest_pins_the_file_beside_it() -> None:
    """Manifest, file, catalogue and the tests' numbers are of one model, of at most 1.5 MB."""
    manifest = read_manifest(manifest_path())
    data = manifest_path().with_name("model.gguf").read_bytes()
    assert manifest.name == "Prism Small World"
    assert manifest.pin == Pin(
        manifest_path().absolute().with_name("model.gguf"), len(data), sha256(data).hexdigest()
    )
    assert len(data) <= 1_500_000
    published = find_published(manifest.pin.nbytes, manifest.pin.sha256)
    assert published is not None
    assert published.name == "Prism-Small-World-PQ2_0"
    golden = json.loads((DATA / "embedded-model.json").read_text("utf-8"))
    assert golden["sha256"] == manifest.pin.sha256
