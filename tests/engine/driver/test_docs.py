from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

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
        [*generated, "--sampling", "reference", "--seed", "1", "--receipt", tmp_path / "r.json"],
        [*base, "--mode", "tokenize"],
        [*base, "--mode", "score", "--save-logits", str(tmp_path / "l.npy")],
        ["--capabilities"],
        ["replay", tmp_path / "r.json", *base],
    ):
        for record in run(*command).records:
            assert f"`{record.get('type', record.get('kind'))}`" in page
            for field in (*record, *record.get("model", ())):
                assert f"`{field}`" in page, field


def shown_after(page: str, label: str) -> dict[str, Any]:
    """The JSON object that a page shows under a label."""
    found = re.search(rf"<!-- {label} -->\n```json\n(.*?)```", page, re.S)
    assert found is not None, label
    record: dict[str, Any] = json.loads(found[1])
    return record


def without_machine(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says the same on every machine."""
    varying = ("computed_by", "receipt_sha256", "receipt", "model", "timings")
    kept = {name: value for name, value in record.items() if name not in varying or name == "model"}
    kept["model"] = {key: value for key, value in record["model"].items() if key in STABLE_OF_MODEL}
    return kept


STABLE_OF_MODEL = ("sha256", "bytes", "contract", "context", "identity", "architecture", "activation_bits")


def test_receipts_are_as_shown(run: Run, tmp_path: Path) -> None:
    """The page's prompt gives its receipt, and the replays agree and differ as it says."""
    page = text("receipts.md")
    written = re.search(r"printf '(.*)' > fox.txt", page)
    assert written is not None
    prompt, path = tmp_path / "fox.txt", tmp_path / "fox.json"
    prompt.write_text(written[1].replace("\\n", "\n"), "utf-8", newline="\n")
    base = [*pinned(TRAINED), "--prompt-file", prompt]
    made = [*base, "--special-input", "parse", "--max-tokens", "16", "--checkpoint-bytes", "1000000000"]
    result = run(*made, "--sampling", "reference", "--seed", "4", "--output", "text", "--receipt", path)
    assert f'"{"".join(record["text"] for record in result.records)}"' in page
    assert without_machine(json.loads(path.read_text())) == without_machine(shown_after(page, "receipt"))
    for label, code in (("replay", 0), ("replay --seed 5", 11)):
        replayed = run("replay", path, *base, *label.split()[1:])
        assert replayed.code == code
        assert without_machine(replayed.records[0]) == without_machine(shown_after(page, label))


def test_receipt_fields_are_documented() -> None:
    """The page on receipts explains every field of the one that it shows."""
    page = text("receipts.md")
    rows = re.findall(r"^\| (`.*?) \|", page, re.M)
    explained = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    names = []
    for part, value in shown_after(page, "receipt").items():
        names += [f"{part}.{field}" for field in value] if isinstance(value, dict) else [part]
    assert explained == names


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
