from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gguf_file import Key, write_gguf
from benchmarks.tensors import TensorPlan
from engine.tensor_types import F32, Q1_0
from tests.gguf_writer import F32 as F32_ID
from tests.gguf_writer import Q1_0 as Q1_0_ID
from tests.gguf_writer import GgufWriter

KEYS: list[Key] = [
    ("general.architecture", "string", "qwen3"),
    ("a.count", "u32", 7),
    ("a.size", "f32", 0.5),
    ("a.flag", "bool", True),
    ("a.numbers", "[i32]", (3, -1)),
    ("a.words", "[string]", ["x", "Ġy"]),
]


def test_equals_another_writer(tmp_path: Path) -> None:
    """The bytes are those of the writer of the tests, and length and hash are the file's."""
    contents = {"odd": b"\1\2\3\4" * 3, "packed": bytes(range(36))}
    plans = [TensorPlan("odd", (3,), F32), TensorPlan("packed", (128, 2), Q1_0)]
    writer = GgufWriter()
    for key in KEYS:
        writer.add(*key)
    writer.tensor("odd", (3,), F32_ID, contents["odd"])
    writer.tensor("packed", (128, 2), Q1_0_ID, contents["packed"])

    def fill(plan: TensorPlan) -> Iterator[bytes]:
        yield contents[plan.name][:5]
        yield contents[plan.name][5:]

    written: list[int] = []
    path = tmp_path / "file"
    length, digest = write_gguf(path, KEYS, plans, fill, written.append)
    data = path.read_bytes()
    assert data == writer.build()
    assert (length, sum(written)) == (len(data), len(data))
    assert digest == hashlib.sha256(data).hexdigest()
