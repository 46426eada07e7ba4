from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import COMMANDS, main

MODEL = ("--model", "tiny-qwen35", "--type", "PQ2_0", "--threads", "2")


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command explains itself and shows how it is called."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert (
        f"python -m benchmarks {command} " in capsys.readouterr().out.split("options:")[0].split("\n\n", 1)[1]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("decode", "--steps", "3", "--rounds", "2", "--context-fill", "5"),
        ("prefill", "--tokens", "20", "--block", "8", "--rounds", "2"),
        ("load", "--rounds", "1"),
        ("memory", "--context", "10"),
        ("profile", "--steps", "2", "--block", "5", "--blocks", "1", "--context-fill", "3"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_measures(
    arguments: tuple[str, ...], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command prints what it found, and saves what it and its machine were."""
    saved = tmp_path / "results.jsonl"
    assert main([*arguments, *MODEL, "--folder", str(folder), "--save", str(saved)]) == 0
    assert capsys.readouterr().out.startswith(arguments[0])
    (line,) = saved.read_text("utf-8").splitlines()
    result = json.loads(line)
    assert result["benchmark"] == arguments[0]
    assert result["subject"]["model"] == "tiny-qwen35"
    assert result["subject"]["folded"] is True
    assert result["engine"]["threads"] == 2
    assert result["machine"]["processors"] >= 1


def test_decode_values(folder: Path, tmp_path: Path) -> None:
    """The share of the bandwidth is that of the median round, by its own tokens a second and readings."""
    saved = tmp_path / "results.jsonl"
    main(["decode", *MODEL, "--folder", str(folder), "--steps", "2", "--rounds", "3", "--save", str(saved)])
    result = json.loads(saved.read_text("utf-8"))
    values, conditions = result["values"], result["conditions"]
    assert values["tokens_per_second"] == sorted(values["rounds"])[1]
    assert conditions["read_bytes_per_second"] == sorted(conditions["bandwidths"])[1]
    rates = zip(values["rounds"], conditions["bandwidths"], strict=True)
    shares = [rate / speed * result["subject"]["weight_bytes"] for rate, speed in rates]
    assert values["share"] == pytest.approx(sorted(shares)[1])


def test_errors_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be measured ends with exit code 1 and a sentence."""
    assert main(["decode", *MODEL, "--folder", str(folder), "--kernel", "abacus"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("decode: kernel 'abacus' is not available here")
    assert error.count("\n") == 1
