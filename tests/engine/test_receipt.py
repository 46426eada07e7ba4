from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidInputError
from engine.receipt import MAX_RECEIPT_BYTES, parse_receipt, read_receipt


def signed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its own digest, computed here: compact JSON with sorted keys."""
    content.pop("receipt_sha256", None)
    raw = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return {**content, "receipt_sha256": hashlib.sha256(raw).hexdigest()}


def document() -> dict[str, Any]:
    """A receipt as a program of another language might write it."""
    return signed(
        {
            "type": "receipt",
            "schema": 1,
            "model": {
                "sha256": "ab" * 32,
                "bytes": 919136,
                "contract": "qwen35:canon-2/16",
                "context": 2048,
            },
            "prompt": {
                "input_mode": "text",
                "special_input": "literal",
                "insert_special": "none",
                "tokens": 2,
                "sha256": "cd" * 32,
            },
            "settings": {
                "max_tokens": 5,
                "stop_tokens": [1021, 7],
                "sampling": {
                    "mode": "reference",
                    "temperature": 1.0,
                    "top_k": 20,
                    "top_p": 0.95,
                    "seed": 2**64 - 1,
                    "rng": "splitmix64",
                },
            },
            "output": {
                "finish": "stop",
                "stop_token": 1021,
                "tokens": 2,
                "sha256": "ef" * 32,
                "steps": "0123456789abcdef",
                "logits_sha256": "01" * 32,
            },
            "computed_by": {"version": "0.1.0", "kernel": "avx512-vnni", "threads": 2},
        }
    )


def saved(content: bytes, folder: Path) -> Path:
    """A file with some content."""
    path = folder / "receipt.json"
    path.write_bytes(content)
    return path


def test_comes_back(tmp_path: Path) -> None:
    """What is read is what was written, in every part."""
    receipt = read_receipt(saved(json.dumps(document()).encode(), tmp_path))
    assert (receipt.model.contract, receipt.model.bytes) == ("qwen35:canon-2/16", 919136)
    assert (receipt.prompt.input_mode, receipt.prompt.tokens) == ("text", 2)
    assert (receipt.settings.stop_tokens, receipt.settings.sampling["seed"]) == ((1021, 7), 2**64 - 1)
    assert (receipt.output.steps, receipt.output.stop_token) == ("0123456789abcdef", 1021)
    assert receipt.computed_by.kernel == "avx512-vnni"
    assert receipt.document() == document() | {
        "settings": document()["settings"] | {"stop_tokens": (1021, 7)}
    }


def test_other_tools_may_rewrite_it(tmp_path: Path) -> None:
    """Order, white space and 1 for 1.0 do not matter."""
    content = json.dumps(document(), sort_keys=True, indent=4).replace("1.0,", "1,")
    assert content != json.dumps(document(), sort_keys=True, indent=4)
    assert (
        read_receipt(saved(content.encode(), tmp_path)).document()["receipt_sha256"]
        == (document()["receipt_sha256"])
    )


def test_rounded_seeds_are_damage(tmp_path: Path) -> None:
    """A tool that reads numbers as binary64 changes a large seed; the receipt's digest tells."""
    content = json.dumps(document()).replace(str(2**64 - 1), str(2**63))
    with pytest.raises(InvalidInputError, match="is damaged"):
        read_receipt(saved(content.encode(), tmp_path))


Change = Callable[[dict[str, Any]], Any]
PARTS = {
    "no object": (b"[]", "is no acceptable JSON"),
    "nothing": (b"", "is no acceptable JSON"),
    "cut off": (json.dumps(document()).encode()[:-1], "is no acceptable JSON"),
    "two": (json.dumps(document()).encode() * 2, "is no acceptable JSON"),
    "key twice": (b'{"type":"receipt","type":"receipt"}', "same key twice"),
    "other object": (b'{"type":"completion"}', "is not an object of type 'receipt'"),
    "not text": (b"\xff", "is no acceptable JSON"),
    "too large": (b" " * (MAX_RECEIPT_BYTES + 1), "is larger than 4194304 bytes"),
}
CHANGES: dict[str, tuple[Change, str]] = {
    "schema": (lambda r: r.update(schema=2), "another schema than 1"),
    "no schema": (lambda r: r.pop("schema"), "another schema than 1"),
    "true as schema": (lambda r: r.update(schema=True), "another schema than 1"),
    "no part": (lambda r: r.pop("output"), "has no 'output'"),
    "unknown part": (lambda r: r.update(note="x"), "has an unknown field at its top"),
    "null part": (lambda r: r.update(model=None), "has no usable 'model'"),
    "no field": (lambda r: r["output"].pop("steps"), "has no 'output.steps'"),
    "unknown field": (lambda r: r["model"].update(path="/secret"), "has an unknown field in model"),
    "digest": (lambda r: r["model"].update(sha256="AB" * 32), "no usable 'model.sha256'"),
    "bytes": (lambda r: r["model"].update(bytes=0), "no usable 'model.bytes'"),
    "context": (lambda r: r["model"].update(context=262_145), "no usable 'model.context'"),
    "contract": (lambda r: r["model"].update(contract="x\ny"), "no usable 'model.contract'"),
    "mode": (lambda r: r["prompt"].update(input_mode="chat"), "no usable 'prompt.input_mode'"),
    "policy": (lambda r: r["prompt"].update(special_input="yes"), "no usable 'prompt.special_input'"),
    "list policy": (lambda r: r["prompt"].update(special_input=[]), "no usable 'prompt.special_input'"),
    "empty prompt": (lambda r: r["prompt"].update(tokens=0), "no usable 'prompt.tokens'"),
    "true": (lambda r: r["prompt"].update(tokens=True), "no usable 'prompt.tokens'"),
    "float": (lambda r: r["prompt"].update(tokens=2.0), "no usable 'prompt.tokens'"),
    "max_tokens": (lambda r: r["settings"].update(max_tokens=0), "no usable 'settings.max_tokens'"),
    "stops": (lambda r: r["settings"].update(stop_tokens=[-1]), "no usable 'settings.stop_tokens'"),
    "257 stops": (
        lambda r: r["settings"].update(stop_tokens=list(range(257))),
        "no usable 'settings.stop_tokens'",
    ),
    "sampling": (lambda r: r["settings"].update(sampling="greedy"), "no usable 'settings.sampling'"),
    "sampler": (lambda r: r["settings"].update(sampling={"mode": "x"}), "sampling settings"),
    "finish": (lambda r: r["output"].update(finish="error"), "no usable 'output.finish'"),
    "stop token": (lambda r: r["output"].update(stop_token=2**32), "no usable 'output.stop_token'"),
    "steps": (lambda r: r["output"].update(steps="x" * 16), "no usable 'output.steps'"),
    "few steps": (lambda r: r["output"].update(steps="01234567"), "counts do not agree"),
    "many tokens": (lambda r: r["output"].update(tokens=6, steps="0" * 48), "counts do not agree"),
    "threads": (lambda r: r["computed_by"].update(threads=0), "no usable 'computed_by.threads'"),
}


@pytest.mark.parametrize(("content", "words"), PARTS.values(), ids=PARTS.keys())
def test_other_files(content: bytes, words: str, tmp_path: Path) -> None:
    """What is no receipt is refused as what it is."""
    with pytest.raises(InvalidInputError, match=r"^the receipt ") as caught:
        read_receipt(saved(content, tmp_path))
    assert words in str(caught.value)
    assert caught.value.field == "receipt"


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES.keys())
def test_wrong_fields(change: Change, words: str) -> None:
    """A field that is missing, unknown or impossible is named, even if the digest agrees."""
    content = document()
    change(content)
    with pytest.raises(InvalidInputError) as caught:
        parse_receipt(signed(content))
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("part", ["model", "prompt", "settings", "output", "computed_by"])
def test_every_change_is_found(part: str) -> None:
    """A number or digest that was changed and is still possible does not agree with the digest."""
    for name, value in document()[part].items():
        content = document()
        if isinstance(value, int):
            content[part][name] = value + 1
        elif isinstance(value, str) and len(value) in (16, 64):
            content[part][name] = value[::-1]
        else:
            continue
        with pytest.raises(InvalidInputError, match=r"is damaged|counts do not agree"):
            parse_receipt(content)


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is a wrong input."""
    with pytest.raises(InvalidInputError, match="the receipt cannot be read: No such file"):
        read_receipt(tmp_path / "none")
