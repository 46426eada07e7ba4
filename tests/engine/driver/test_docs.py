from __future__ import annotations

import re
from pathlib import Path

from engine import gguf
from engine.driver.exit_codes import ExitCode
from engine.driver.option_table import OPTIONS
from engine.manifest import KEYS
from engine.tensor_types import TENSOR_TYPES
from tests.engine.driver.commands import ROOT, Run, pinned
from tests.models import model_path

TRAINED = model_path("trained-qwen35-pq2_0-had")


def text(name: str) -> str:
    """A page of the documentation."""
    return (ROOT / "docs" / name).read_text("utf-8")


def test_options_and_exit_codes_are_documented() -> None:
    """The driver's page names every option and every exit code."""
    page = text("driver.md")
    for options in OPTIONS.values():
        for option in options:
            assert f"`{option.flag}" in page, option.flag
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)} == set(ExitCode)


def test_record_fields_are_documented(run: Run, tmp_path: Path) -> None:
    """The driver's page names every field of every record."""
    page = text("driver.md")
    base = [*pinned(TRAINED), "--prompt", "Hi"]
    generated = [*base, "--max-tokens", "2", "--checkpoint-bytes", "100000000", "--output", "text"]
    for command in (
        [*generated, "--sampling", "reference", "--seed", "1"],
        [*base, "--mode", "tokenize"],
        [*base, "--mode", "score", "--save-logits", str(tmp_path / "l.npy")],
        ["--capabilities"],
    ):
        for record in run(*command).records:
            assert f"`{record.get('type', record.get('kind'))}`" in page
            for field in (*record, *record.get("model", ())):
                assert f"`{field}`" in page, field


def test_identification_is_as_shown(run: Run) -> None:
    """The shown output of `identify` is what it prints now, but for the path."""
    page = text("pin-a-model.md")
    shown = re.search(r"<!-- output of: identify .* -->\n```toml\n(.*?)```", page, re.S)
    found = re.sub('path = ".*/', 'path = "/models/', run("identify", TRAINED).out.decode("utf-8"))
    assert shown is not None
    assert shown[1] == found


def test_manifest_keys_are_documented() -> None:
    """The page on pinning explains every key of a manifest."""
    assert re.findall(r"^\| `(\w+)` \| (?:yes|no)", text("pin-a-model.md"), re.M) == list(KEYS)


def test_limits_are_documented() -> None:
    """The page on formats has the parser's limits and the ids of all types."""
    page = text("formats.md")
    for value in (
        gguf.MAX_KEYS,
        gguf.MAX_KEY_BYTES,
        gguf.MAX_ARRAY_STRINGS,
        gguf.MAX_STRINGS,
        gguf.MAX_ALIGNMENT,
    ):
        assert f"{value:,}" in page
    assert f"1 to {gguf.MAX_TENSOR_NAME_BYTES} bytes" in page
    assert f"{gguf.MAX_HEADER_BYTES // 2**20} MiB" in page
    rows = re.findall(r"^\| [^|]+ \| ([\d, –]+) \| [\d or]+ \|", page, re.M)
    ids: set[int] = set()
    for part in ", ".join(rows).split(", "):
        first, _, last = part.strip().partition("–")
        ids |= set(range(int(first), int(last or first) + 1))
    assert set(TENSOR_TYPES) <= ids
