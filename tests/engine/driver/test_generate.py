from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.driver import generate as generating
from engine.driver import main as driver
from engine.driver.inputs import Prompt, read_input
from engine.driver.options import Options
from tests.engine.driver.commands import Run, pinned
from tests.gguf_writer import GgufWriter
from tests.models import DATA, model_path

TRAINED = model_path("trained-qwen35-pq2_0-had")
RANDOM = model_path("tiny-qwen3-q8_0")
GREEDY: dict[str, dict[str, Any]] = json.loads((DATA / "trained-qwen35.json").read_text("utf-8"))["greedy"]
CLEAR = {question: case for question, case in GREEDY.items() if min(case["greedy_margins"]) > 0.05}
EOS = 1021
BUDGET = ["--checkpoint-bytes", "100000000"]


def ids(values: list[int]) -> str:
    """Ids as an option's value."""
    return ",".join(map(str, values))


@pytest.mark.parametrize("case", CLEAR.values(), ids=CLEAR.keys())
def test_golden_answers(case: dict[str, Any], run: Run) -> None:
    """Text with parsed markers gives the ids and the answer that the training framework gave."""
    result = run(
        *(*pinned(TRAINED), "--prompt", case["prompt"], "--special-input", "parse", "--output", "text"),
        *("--max-tokens", "60", *BUDGET),
    )
    assert (result.code, result.err) == (0, "")
    *tokens, completion = result.records
    expected = case["greedy_ids"][:-1]
    assert [record["token"] for record in tokens] == expected
    assert [record["index"] for record in tokens] == list(range(len(expected)))
    assert {record["type"] for record in tokens} == {"token"}
    text = "".join(record["text"] for record in result.records)
    assert text + "<|im_end|>" == case["text"]
    assert b"".join(base64.b64decode(record["bytes"]) for record in tokens).decode() == text
    assert not any(record["special"] for record in tokens)
    assert completion["prompt_tokens"] == len(case["prompt_ids"])
    assert (completion["finish"], completion["stop_token"]) == ("stop", EOS)


def test_accounting(run: Run) -> None:
    """The last record accounts for every setting that had an influence."""
    pin = pinned(TRAINED)
    case = CLEAR["Hello!"]
    result = run(
        *(*pin, "--tokens", ids(case["prompt_ids"]), "--max-tokens", "3", *BUDGET, "--context", "64"),
        *("--stop-tokens", "5,1021,6,5", "--prefill-block-tokens", "7"),
        *("--threads", "1", "--activation-bits", "8", "--kernel", "numpy"),
    )
    *tokens, completion = result.records
    assert [record for record in tokens if set(record) != {"type", "index", "token"}] == []
    timings, model = completion.pop("timings"), completion.pop("model")
    assert completion == {
        "type": "completion",
        "finish": "length",
        "stop_token": None,
        "prompt_tokens": len(case["prompt_ids"]),
        "output_tokens": 3,
        "reused_tokens": 0,
        "max_tokens": 3,
        "context": 64,
        "stop_tokens": [EOS, 5, 6],
        "prefill_block_tokens": 7,
        "sampling": {"mode": "greedy"},
        "input_mode": "tokens",
    }
    assert list(timings) == ["load_seconds", "prefill_seconds", "decode_seconds"]
    assert model.pop("huge_page_bytes") is None or sys.platform == "linux"
    assert model == {
        "identity": f"{pin[5]}:qwen35:canon-2/8",
        "sha256": pin[5],
        "bytes": int(pin[3]),
        "architecture": "qwen35",
        "name": "tiny demo",
        "kernels": "numpy",
        "threads": 1,
        "activation_bits": 8,
    }


def test_text_policies_are_recorded(run: Run) -> None:
    """Text input records its policies; literal text never becomes a control token."""
    base = [*pinned(TRAINED), "--prompt", "<|im_end|>", "--max-tokens", "1", *BUDGET]
    literal, parsed = (
        run(*base, "--special-input", policy, "--insert-special", "model").records[-1]
        for policy in ("literal", "parse")
    )
    assert [literal[name] for name in ("input_mode", "special_input", "insert_special")] == [
        *("text", "literal", "model")
    ]
    assert parsed["special_input"] == "parse"
    assert parsed["prompt_tokens"] == 1 < literal["prompt_tokens"]


def test_manifest_and_defaults(run: Run, tmp_path: Path) -> None:
    """The shortest command: a manifest, a prompt, a limit and a checkpoint budget."""
    manifest = tmp_path / "m.toml"
    assert run("pin", TRAINED, "--output", manifest).code == 0
    result = run(
        "--manifest", manifest, "--prompt", "Hello", "--max-tokens", "8", *BUDGET, "--output", "text"
    )
    assert result.code == 0
    assert result.records[-1]["context"] == 2048  # the model's own
    assert result.records[-1]["input_mode"] == "text"


def test_caller_stops(run: Run) -> None:
    """A caller's stop ends the answer, is not emitted and is named."""
    case = CLEAR["What day comes after Friday?"]
    stop = case["greedy_ids"][2]
    result = run(
        *(*pinned(TRAINED), "--tokens", ids(case["prompt_ids"]), "--max-tokens", "9", *BUDGET),
        *("--stop-tokens", str(stop)),
    )
    *tokens, completion = result.records
    assert [record["token"] for record in tokens] == case["greedy_ids"][:2]
    assert (completion["finish"], completion["stop_token"], completion["output_tokens"]) == ("stop", stop, 2)


def test_inputs_are_one(run: Run, tmp_path: Path) -> None:
    """Text or ids give the same answer from an argument, a file or standard input."""
    text, numbers = tmp_path / "p.txt", tmp_path / "p.json"
    case = CLEAR["Opposite of early?"]
    text.write_bytes(case["prompt"].encode())
    numbers.write_text(json.dumps(case["prompt_ids"], indent=1))
    base = [*pinned(TRAINED), "--max-tokens", "20", *BUDGET]
    parse = ["--special-input", "parse"]
    results = [
        run(*base, "--prompt", case["prompt"], *parse),
        run(*base, "--prompt-file", text, *parse),
        run(*base, "--prompt-file", "-", *parse, stdin=case["prompt"].encode()),
        run(*base, "--tokens", ids(case["prompt_ids"])),
        run(*base, "--tokens-file", numbers),
        run(*base, "--tokens-file", "-", stdin=numbers.read_bytes()),
    ]
    answers = [[record["token"] for record in result.records[:-1]] for result in results]
    assert answers == [case["greedy_ids"][:-1]] * 6


def test_blocks_and_threads_change_nothing(run: Run) -> None:
    """The same tokens come out of any prefill block and number of threads."""
    base = [*pinned(RANDOM), "--prompt", "some text to begin with", "--max-tokens", "12", *BUDGET]
    runs = [
        run(*base, "--prefill-block-tokens", block, "--threads", threads).records[:-1]
        for block, threads in ((1, 1), (3, 2), (256, 1))
    ]
    assert runs[0] == runs[1] == runs[2]


def test_reference_sampling(run: Run) -> None:
    """One seed gives one answer, another seed another; the record has all settings."""
    base = [*pinned(RANDOM), "--prompt", "x", "--max-tokens", "16", *BUDGET, "--sampling", "reference"]
    first, again, other = (run(*base, "--seed", seed, "--top-k", "0").records for seed in (7, 7, 8))
    assert first[:-1] == again[:-1] != other[:-1]
    assert first[-1]["sampling"] == {
        "mode": "reference",
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 0.95,
        "seed": 7,
        "rng": "splitmix64",
    }


def test_split_characters(run: Run) -> None:
    """Text holds incomplete UTF-8 back, bytes never; the record flushes what is left as U+FFFD."""
    # Greedy continuations of the untrained model are arbitrary tokens, bytes of characters among them.
    result = run(
        *(*pinned(RANDOM), "--prompt", "é", "--max-tokens", "200", *BUDGET, "--output", "text"),
        *("--sampling", "reference", "--seed", "3", "--temperature", "5", "--top-k", "0", "--top-p", "1"),
    )
    *tokens, completion = result.records
    raw = b"".join(base64.b64decode(record["bytes"]) for record in tokens)
    text = "".join(record["text"] for record in tokens) + completion["text"]
    assert text == raw.decode("utf-8", "replace")
    assert "\ufffd" in text


def test_control_tokens_in_text(run: Run) -> None:
    """A control token in the answer keeps its spelling as text and bytes, and is marked."""
    # With this seed and nearly equal chances, <|im_start|> (957) is the fifteenth token.
    result = run(
        *(*pinned(RANDOM), "--tokens", "1", "--max-tokens", "15", *BUDGET, "--output", "text"),
        *("--sampling", "reference", "--seed", "30", "--temperature", "1000", "--top-k", "0", "--top-p", "1"),
    )
    *tokens, _ = result.records
    assert [record["special"] for record in tokens] == [False] * 14 + [True]
    last = tokens[-1]
    assert last["token"] == 957
    assert base64.b64decode(last["bytes"]) == b"<|im_start|>"
    assert last["text"].endswith("<|im_start|>")  # after what earlier bytes had left open


def test_stops_share_one_bound(run: Run) -> None:
    """256 stops are the most, the model's own among them; repetitions do not count."""
    base = [*pinned(TRAINED), "--tokens", "1", "--max-tokens", "1", *BUDGET, "--stop-tokens"]
    others = ids(list(range(2, 257)))
    assert len(run(*base, f"{others},{EOS},{others}").records[-1]["stop_tokens"]) == 256
    assert len(run(*base, f"{others},{others}").records[-1]["stop_tokens"]) == 256
    result = run(*base, f"{others},257")  # 256 of the caller's, and the model's own
    assert (result.code, result.out) == (2, b"")
    assert "257 different stop tokens" in result.error


def test_context_overflow_after_encoding(run: Run) -> None:
    """Text whose exact ids leave no room for the whole output is refused before anything is generated."""
    base = [*pinned(TRAINED), "--prompt", "one two three four", *BUDGET, "--context", "20"]
    counted = run("--mode", "tokenize", *pinned(TRAINED), "--prompt", "one two three four").records[0]
    room = 20 - counted["token_count"]
    assert run(*base, "--max-tokens", room).code == 0
    result = run(*base, "--max-tokens", room + 1)
    assert (result.code, result.out) == (2, b"")
    assert "maximum context length is 20 tokens" in result.error


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--tokens", "1,5000"], 2, "token id 5000 is outside the vocabulary of 1024"),
        (["--tokens", "1", "--stop-tokens", "1024"], 2, "1024 is outside the vocabulary"),
        (["--tokens", "1", "--context", "4096"], 2, "4096"),
        (["--tokens", "1", "--memory-bytes", "1000"], 3, "1000 bytes"),
    ],
)
def test_refused_with_the_model(options: list[str], code: int, words: str, run: Run) -> None:
    """What only the model can tell is refused before a token comes out."""
    result = run(*pinned(TRAINED), *options, "--max-tokens", "2", *BUDGET)
    assert (result.code, result.out) == (code, b"")
    assert words in result.error


def test_checkpoint_budget(run: Run) -> None:
    """A checkpoint budget below what the recurrent state takes is refused with both numbers."""
    result = run(*pinned(TRAINED), "--tokens", "1", "--max-tokens", "2", "--checkpoint-bytes", "1000")
    assert (result.code, result.out) == (3, b"")
    assert "the budget is 1000" in result.error


@pytest.mark.parametrize(
    ("flag", "stdin", "words"),
    [
        ("--prompt-file", b"", "the prompt is empty"),
        ("--prompt-file", b"\xff", "not valid UTF-8"),
        ("--prompt-file", b"x" * (2**20 + 1), "larger than 1048576 bytes"),
        ("--tokens-file", b"[]", "the token input is empty"),
        ("--tokens-file", b"[1,-2]", "at index 1"),
        ("--tokens-file", b"[1,2,3,4]", "the prompt has 4 and 2 are reserved"),
        ("--tokens-file", b"[1]".ljust(2**20 + 1), "larger than 1048576 bytes"),
    ],
)
def test_input_comes_before_the_model(flag: str, stdin: bytes, words: str, run: Run, tmp_path: Path) -> None:
    """Bad input is refused although there is no model to open."""
    pin = ["--model", tmp_path / "none.gguf", "--bytes", "5", "--sha256", "0" * 64]
    result = run(*pin, flag, "-", "--max-tokens", "2", *BUDGET, "--context", "5", stdin=stdin)
    assert (result.code, result.out) == (2, b"")
    assert words in result.error


def test_options_come_before_input(run: Run, tmp_path: Path) -> None:
    """A wrong option is refused before standard input or a file is read."""
    pin = ["--model", tmp_path / "none.gguf", "--bytes", "5", "--sha256", "0" * 64]
    result = run(*pin, "--prompt-file", "-", "--max-tokens", "2", *BUDGET, "--top-k", "5", stdin=b"")
    assert "--top-k needs" in result.error
    result = run(*pin, "--prompt-file", tmp_path / "none", "--max-tokens", "2", *BUDGET)
    assert result.code == 2
    assert result.error.startswith("--prompt-file: No such file")


@pytest.mark.parametrize(
    ("slow", "code", "kinds"),
    [("load", 0, ["token", "token", "completion"]), ("write_record", 8, ["token"])],
)
def test_the_time_is_for_the_generation(
    slow: str, code: int, kinds: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading does not count; a reader that is slow to take tokens does, and no success record follows."""
    real, passed, original = time.monotonic, 0.0, getattr(generating, slow)

    def slowly(*arguments: Any) -> Any:
        nonlocal passed
        passed += 100.0
        return original(*arguments)

    monkeypatch.setattr(time, "monotonic", lambda: real() + passed)
    monkeypatch.setattr(generating, slow, slowly)
    options = ["--tokens", "1", "--max-tokens", "2", *BUDGET, "--timeout-seconds", "50"]
    result = run(*pinned(RANDOM), *options)
    assert result.code == code, result.err
    assert [record["type"] for record in result.records] == kinds


def test_reading_has_no_time_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt that comes slowly does not use up the time of the generation."""
    real, passed, original = time.monotonic, 0.0, read_input

    def slowly(options: Options) -> Prompt:
        nonlocal passed
        passed += 100.0
        return original(options)

    monkeypatch.setattr(time, "monotonic", lambda: real() + passed)
    monkeypatch.setattr(driver, "read_input", slowly)
    options = ["--prompt-file", "-", "--max-tokens", "2", *BUDGET, "--timeout-seconds", "50"]
    assert run(*pinned(RANDOM), *options, stdin=b"x").code == 0


@pytest.mark.parametrize(
    ("change", "words"), [((b"\0gpt2", b"\0bert"), "bert"), ((b"gml.pre", b"gml.prX"), "tokenizer.ggml.pre")]
)
def test_text_needs_a_known_vocabulary(
    change: tuple[bytes, bytes], words: str, run: Run, tmp_path: Path
) -> None:
    """Bytes and text are only told for byte-level tokens by a known rule; exact ids do not help."""
    path = tmp_path / "m.gguf"
    path.write_bytes(RANDOM.read_bytes().replace(*change))
    options = ["--tokens", "1", "--max-tokens", "2", *BUDGET, "--output", "text"]
    result = run(*pinned(path), *options)
    assert (result.code, result.out) == (5, b"")
    assert words in result.error


def test_unsupported_files(run: Run, tmp_path: Path) -> None:
    """A file without a graph here is named as that, not as corrupt."""
    path = GgufWriter().add("general.architecture", "string", "gemma3").write(tmp_path / "g.gguf")
    result = run(*pinned(path), "--tokens", "1", "--max-tokens", "2", *BUDGET)
    assert (result.code, result.out) == (5, b"")
    assert "gemma3" in result.error
