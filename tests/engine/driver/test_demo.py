from __future__ import annotations

from pathlib import Path

import pytest

from engine.demo import manifest_path
from engine.gguf import parse_header
from engine.kernels import KERNEL_NAMES
from engine.manifest import read_manifest
from engine.tokenizer import Tokenizer
from tests.engine.driver.commands import Run, execute

QUESTION = "What is the capital of France?"
ASKED = (
    f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"  # no thinking
)


def test_a_question_is_put_into_the_models_format(run: Run) -> None:
    """The ids of a demo prompt spell a user's turn and the start of an answer without thinking."""
    (record,) = run("--demo", "--mode", "tokenize", "--prompt", QUESTION).records
    assert record["input_mode"] == "question"
    data = read_manifest(manifest_path()).pin.path.read_bytes()
    vocabulary = Tokenizer.from_metadata(parse_header(data, len(data)).metadata).vocabulary
    assert vocabulary.decode(record["token_ids"]).decode() == ASKED
    controls = [token for token in record["token_ids"] if vocabulary.is_control(token)]
    assert len(controls) == 3  # the turns' marks, each one token


def test_an_answer_needs_no_other_option() -> None:
    """The command of the README: an answer in text records, ended by the model itself."""
    done = execute("--demo", "--prompt", QUESTION, "--output", "text")
    assert done.code == 0, done.err
    *tokens, record = done.records
    assert "Paris" in "".join(token["text"] for token in tokens)
    assert (record["finish"], record["max_tokens"], record["input_mode"]) == ("stop", 256, "question")
    assert record["model"]["sha256"] == read_manifest(manifest_path()).pin.sha256


def test_given_options_count(run: Run) -> None:
    """What is said is not replaced by the demo's own defaults."""
    options = ("--max-tokens", "2", "--checkpoint-bytes", "30000000", "--prefill-block-tokens", "3")
    record = run("--demo", "--prompt", QUESTION, *options).records[-1]
    assert (record["max_tokens"], record["output_tokens"], record["prefill_block_tokens"]) == (2, 2, 3)


def test_ids_are_taken_as_they_are(run: Run) -> None:
    """Token ids are no question."""
    (record,) = run("--demo", "--mode", "tokenize", "--tokens", "3,4").records
    assert (record["token_ids"], record["input_mode"]) == ([3, 4], "tokens")


def test_a_receipt_of_a_question_is_replayed(run: Run, tmp_path: Path) -> None:
    """The same question is the receipt's prompt again, another one is not."""
    receipt = tmp_path / "r.json"
    asked = ("--demo", "--prompt", QUESTION)
    assert run(*asked, "--max-tokens", "4", "--receipt", receipt).code == 0
    assert run("replay", receipt, *asked).records[0]["agrees"] is True
    other = run("replay", receipt, "--demo", "--prompt", QUESTION + "?")
    assert (other.code, other.out) == (2, b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--demo=1", "--prompt", "x"], "--demo takes no value"),
        (["--demo", "--demo", "--prompt", "x"], "--demo is given twice"),
        (["--demo", "--manifest", "m.toml", "--prompt", "x"], "--demo and --manifest exclude each other"),
        (["--demo", "--bytes", "7", "--prompt", "x"], "--demo and --bytes exclude each other"),
        (["--demo", "--prompt", "x", "--special-input", "parse"], "--special-input is for plain text"),
        (["--demo", "--prompt", "x", "--max-tokens", "0"], "--max-tokens: must be at least 1"),
        (["--demo"], "exactly one of --prompt"),
    ],
)
def test_what_does_not_go_with_the_demo(run: Run, arguments: list[str], words: str) -> None:
    """Each is one line and code 2."""
    result = run(*arguments)
    assert (result.code, result.out) == (2, b"")
    assert words in result.error


def test_self_test(run: Run) -> None:
    """Every kernel of the machine has a record, and one that is named is the only one."""
    records = run("self-test").records
    assert [(record["kernel"], record["agrees"]) for record in records] == [
        (name, True) for name in KERNEL_NAMES
    ]
    (record,) = run("self-test", "--kernel", "numpy", "--activation-bits", "8", "--threads", "2").records
    assert (record["type"], record["kernel"], record["activation_bits"]) == ("self-test", "numpy", 8)
    assert run("self-test", "--kernel", "abacus").code == 2
