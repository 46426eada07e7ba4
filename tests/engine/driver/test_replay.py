from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from engine.kernels import KERNEL_NAMES
from tests.engine.driver.commands import Result, Run, execute, pinned
from tests.models import DATA, model_path

TRAINED = model_path("trained-qwen35-pq2_0-had")
OTHER = model_path("tiny-qwen3-q8_0")
GREEDY: dict[str, dict[str, Any]] = json.loads((DATA / "trained-qwen35.json").read_text("utf-8"))["greedy"]
CASE = GREEDY["What day comes after Friday?"]
PROMPT = ["--prompt", CASE["prompt"]]
BUDGET = ["--checkpoint-bytes", "100000000"]
DRAWN = ["--sampling", "reference", "--seed", "7", "--temperature", "4", "--special-input", "parse"]
TOKENS = 8


def make(run: Run, path: Path, *options: str, prompt: list[str] = PROMPT) -> list[int]:
    """Writes a receipt, and gives the tokens of its run."""
    options = (*options, *([] if "--threads" in options else ["--threads", "1"]))
    result = run(*pinned(TRAINED), *prompt, "--max-tokens", str(TOKENS), *BUDGET, *options, "--receipt", path)
    assert (result.code, result.err) == (0, "")
    return [record["token"] for record in result.records[:-1]]


@pytest.fixture
def receipt(run: Run, tmp_path: Path) -> Path:
    """A receipt of a drawn answer, computed by NumPy on one thread."""
    make(run, tmp_path / "r.json", *DRAWN, "--kernel", "numpy")
    return tmp_path / "r.json"


def replay(run: Run, path: Path, *options: str, prompt: list[str] = PROMPT) -> Result:
    """Replays a receipt with the same model."""
    options = (*options, *([] if "--threads" in options else ["--threads", "1"]))
    return run("replay", path, *pinned(TRAINED), *prompt, *options)


def test_the_receipt_says_what_ran(run: Run, tmp_path: Path) -> None:
    """Model, contract, settings, seed and the digests of prompt and output, but nothing of either."""
    path = tmp_path / "r.json"
    tokens = make(run, path, *DRAWN, "--stop-tokens", "7")
    content = json.loads(path.read_text("utf-8"))
    prompt = struct.pack(f"<{len(CASE['prompt_ids'])}I", *CASE["prompt_ids"])
    output = struct.pack(f"<{len(tokens)}I", *tokens)
    assert content["model"] == {
        "sha256": pinned(TRAINED)[5],
        "bytes": TRAINED.stat().st_size,
        "contract": "qwen35:canon-2/16",
        "context": 2048,
    }
    assert content["prompt"] == {
        "input_mode": "text",
        "special_input": "parse",
        "insert_special": "none",
        "tokens": len(CASE["prompt_ids"]),
        "sha256": hashlib.sha256(prompt).hexdigest(),
    }
    assert content["settings"]["stop_tokens"] == [1021, 7]
    assert content["settings"]["sampling"]["seed"] == 7
    assert content["output"]["tokens"] == len(tokens)
    assert content["output"]["sha256"] == hashlib.sha256(output).hexdigest()
    assert content["output"]["steps"][-8:] == hashlib.sha256(prompt + output).hexdigest()[:8]
    text = path.read_text("utf-8")
    assert "Friday" not in text
    assert str(path.parent) not in text
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("kernel", "threads", "block"),
    [(kernel, threads, 2 * threads - 3) for kernel in KERNEL_NAMES for threads in (2, 3)],
)
def test_other_kernels_and_threads_agree(
    kernel: str, threads: int, block: int, receipt: Path, run: Run
) -> None:
    """What NumPy computed on one thread, every kernel computes again on two and three, in any blocks."""
    result = replay(
        run,
        receipt,
        *("--kernel", kernel, "--threads", str(threads), "--prefill-block-tokens", str(block)),
    )
    (record,) = result.records
    assert (result.code, result.err) == (0, "")
    assert record["agrees"] is True
    assert record["agreeing_tokens"] == record["output_tokens"] == TOKENS
    assert (record["differs_in"], record["first_difference"], record["token"]) == (None, None, None)
    assert (record["model"]["kernels"], record["model"]["threads"]) == (kernel, threads)
    assert record["receipt"]["computed_by"]["kernel"] == "numpy"


def test_another_process_agrees(receipt: Path) -> None:
    """The command of the documentation, as a process of its own."""
    result = execute("replay", str(receipt), *pinned(TRAINED), *PROMPT)
    assert (result.code, result.err) == (0, "")
    assert result.records[0]["agrees"] is True


def test_another_seed_parts(run: Run, tmp_path: Path) -> None:
    """With another seed the replay names the first token that differs, which two runs show as well."""
    path = tmp_path / "r.json"
    first, second = (make(run, path, *DRAWN[:2], *DRAWN[4:], "--seed", seed) for seed in "43")
    parting = next(index for index, (one, two) in enumerate(zip(first, second, strict=False)) if one != two)
    assert parting > 0
    result = replay(run, path, "--seed", "4")
    (record,) = result.records
    assert (result.code, result.err) == (11, "")
    assert record["agrees"] is False
    assert (record["differs_in"], record["first_difference"]) == ("token", parting)
    assert (record["token"], record["agreeing_tokens"]) == (first[parting], parting)
    assert (record["sampling"]["seed"], record["receipt"]["sampling"]["seed"]) == (4, 3)


def test_eight_bits_stay_eight(run: Run, tmp_path: Path) -> None:
    """The activation bits are the receipt's."""
    path = tmp_path / "r.json"
    make(run, path, *DRAWN, "--activation-bits", "8")
    assert json.loads(path.read_text())["model"]["contract"] == "qwen35:canon-2/8"
    (record,) = replay(run, path).records
    assert (record["agrees"], record["model"]["activation_bits"]) == (True, 8)


def changed(path: Path, part: str, **fields: Any) -> None:
    """Changes a receipt and makes its digest fit again."""
    content = json.loads(path.read_text("utf-8"))
    content.pop("receipt_sha256")
    content[part].update(fields)
    raw = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    path.write_text(json.dumps(content | {"receipt_sha256": hashlib.sha256(raw).hexdigest()}), "utf-8")


def test_other_logits_differ(receipt: Path, run: Run) -> None:
    """Where all tokens agree, the digest of the last logits still tells."""
    changed(receipt, "output", logits_sha256="0" * 64)
    result = replay(run, receipt)
    (record,) = result.records
    assert (result.code, record["agrees"], record["differs_in"]) == (11, False, "logits")
    assert (record["first_difference"], record["agreeing_tokens"]) == (None, TOKENS)


@pytest.mark.parametrize(
    ("tokens", "end", "part", "place"),
    [
        (TOKENS, {"finish": "stop", "stop_token": 1021}, "end", TOKENS),
        (5, {"finish": "stop", "stop_token": 1021}, "token", 5),
        (5, {"finish": "stop", "stop_token": None}, "logits", None),  # the text ended it there
        (TOKENS, {"finish": "stop", "stop_token": None}, "logits", None),
    ],
)
def test_other_ends_differ(
    tokens: int, end: dict[str, Any], part: str, place: int | None, run: Run, tmp_path: Path
) -> None:
    """An answer that ended elsewhere or otherwise differs there; one that its text ended is cut there."""
    path = tmp_path / "r.json"
    ids = make(run, path, *DRAWN)[:tokens]
    content = json.loads(path.read_text("utf-8"))["output"]
    digest = hashlib.sha256(struct.pack(f"<{tokens}I", *ids)).hexdigest()
    changed(path, "output", tokens=tokens, steps=content["steps"][: 8 * tokens], sha256=digest, **end)
    changed(path, "output", logits_sha256="0" * 64)
    (record,) = replay(run, path).records
    assert (record["differs_in"], record["first_difference"]) == (part, place)
    assert record["agreeing_tokens"] == tokens


def test_stops_and_prompts_of_ids(run: Run, tmp_path: Path) -> None:
    """A greedy answer that a caller's stop ended is replayed from ids in a file."""
    path, ids = tmp_path / "r.json", tmp_path / "ids.json"
    ids.write_text(json.dumps(CASE["prompt_ids"]))
    stop = str(CASE["greedy_ids"][2])
    prompt = ["--tokens-file", str(ids)]
    assert make(run, path, "--stop-tokens", stop, prompt=prompt) == CASE["greedy_ids"][:2]
    (record,) = replay(run, path, prompt=prompt).records
    assert (record["agrees"], record["output_tokens"]) == (True, 2)
    text = [*PROMPT]
    make(run, path, "--special-input", "parse", prompt=text)
    assert replay(run, path, prompt=text).records[0]["agrees"] is True
    assert replay(run, path, prompt=prompt).records[0]["agrees"] is True


@pytest.mark.parametrize(
    "prompt", [["--prompt", CASE["prompt"] + " "], ["--tokens", "1,2"], ["--prompt", "x"]]
)
def test_another_prompt_is_refused(prompt: list[str], receipt: Path, run: Run) -> None:
    """A prompt with another digest is refused before anything is computed, and not repeated."""
    result = replay(run, receipt, prompt=prompt)
    assert (result.code, result.out) == (2, b"")
    assert result.error.startswith("the prompt is not the receipt's")


def test_ids_are_refused_before_the_model_is_read(receipt: Path, run: Run, tmp_path: Path) -> None:
    """Where the prompt is given as ids, no model file is needed to see that it is another one."""
    pin = ["--model", str(tmp_path / "none"), *pinned(TRAINED)[2:]]
    assert run("replay", receipt, *pin, "--tokens", "1").code == 2
    assert run("replay", receipt, *pin, "--tokens", "1").error.startswith("the prompt is not")


def test_another_model_is_refused(receipt: Path, run: Run) -> None:
    """A model with another hash is refused before it is read."""
    result = run("replay", receipt, *pinned(OTHER), *PROMPT)
    assert (result.code, result.out) == (4, b"")
    assert pinned(TRAINED)[5] in result.error


def test_another_contract_is_refused(receipt: Path, run: Run) -> None:
    """An arithmetic or graph that this program would not use for the model is named."""
    for contract in ("qwen35:canon-1/16", "llama:canon-2/16", "qwen35:canon-2/4"):
        changed(receipt, "model", contract=contract)
        result = replay(run, receipt)
        assert (result.code, contract in result.error) == (2, True)


def test_damaged_receipts_are_refused(receipt: Path, run: Run) -> None:
    """A changed digit is found, and nothing is computed."""
    text = receipt.read_text("utf-8")
    receipt.write_text(text.replace('"seed":7', '"seed":8'), "utf-8")
    result = replay(run, receipt)
    assert (result.code, result.out) == (2, b"")
    assert "is damaged" in result.error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "exactly one receipt is needed, but 0"),
        (["{}", "{}"], "exactly one receipt is needed, but 2"),
        (["{}"], "exactly one of --prompt"),
        (["{}", "--prompt", "x", "--tokens", "1"], "but 2 are given"),
        (["{}", "--temperature", "1"], "there is no option --temperature"),
        (["{}", "--max-tokens", "1"], "there is no option --max-tokens"),
        (["{}", "--seed", "-1"], "--seed: must be an integer"),
        (["none.json", "--prompt", "x"], "the receipt cannot be read"),
    ],
)
def test_wrong_commands(words: list[str], message: str, receipt: Path, run: Run) -> None:
    """What the receipt settles cannot be given again."""
    result = run("replay", *(word.format(receipt) for word in words), *pinned(TRAINED))
    assert (result.code, result.out) == (2, b"")
    assert message in result.error


def test_greedy_has_no_seed(run: Run, tmp_path: Path) -> None:
    """An answer that was not drawn cannot be replayed with another seed."""
    make(run, tmp_path / "r.json")
    assert "not drawn" in replay(run, tmp_path / "r.json", "--seed", "1").error


def test_no_receipt_without_success(run: Run, tmp_path: Path) -> None:
    """A failed command leaves no receipt, and an older one as it is."""
    path = tmp_path / "r.json"
    path.write_text("older")
    failing = [*pinned(TRAINED), "--tokens", "1,5000", "--max-tokens", "2", *BUDGET, "--receipt", str(path)]
    assert run(*failing).code == 2
    assert path.read_text() == "older"
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]
    make(run, path)
    assert json.loads(path.read_text())["type"] == "receipt"


def test_no_place_for_the_receipt(run: Run, tmp_path: Path) -> None:
    """A receipt that could not be written is refused before the model is read."""
    pin = ["--model", str(tmp_path / "none"), *pinned(TRAINED)[2:]]
    for place in (tmp_path, tmp_path / "none" / "r.json"):
        result = run(*pin, "--tokens", "1", "--max-tokens", "2", *BUDGET, "--receipt", place)
        assert result.code == 2
        assert result.error.startswith("--receipt: ")
