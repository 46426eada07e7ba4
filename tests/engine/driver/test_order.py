"""The order of validation: options, then input, then the model file, then vocabulary and context.

Standard input is a pipe that its writer holds open, so a command that read it too early would never end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.driver.commands import COMMAND, Run, environment, pinned
from tests.models import model_path

TRAINED = model_path("trained-qwen35-pq2_0-had")
MISSING = ["--model", str(Path.cwd() / "no-such-model.gguf"), "--bytes", "5", "--sha256", "0" * 64]
GENERATE = ["--max-tokens", "2", "--checkpoint-bytes", "100000000"]


@contextmanager
def waiting(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command with a standard input that stays open; it is ended if the test fails."""
    pipe = subprocess.PIPE
    command = [*COMMAND, *arguments]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def error_of(process: subprocess.Popen[bytes]) -> str:
    """The error of a command that ends by itself, with code 2 and no output, while its input is open."""
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.wait(60) == 2
    assert process.stdout.read() == b""
    return process.stderr.read().decode()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*MISSING, *GENERATE, "--prompt-file", "-", "--top-k", "5"], "--top-k needs"),
        ([*MISSING, *GENERATE, "--prompt-file", "-", "--tokens-file", "-"], "but 2 are given"),
        ([*MISSING, *GENERATE, "--prompt-file", "-", "--stop-tokens", "1,x"], "--stop-tokens: must be"),
        (
            [*MISSING, *GENERATE, "--prompt-file", "-", "--stop-tokens", ",".join(map(str, range(257)))],
            "257 different ids",
        ),
        ([*MISSING, *GENERATE, "--prompt-file", "-", "--context", "2"], "maximum context length is 2"),
        ([*MISSING[:4], "--sha256", "x", *GENERATE, "--prompt-file", "-"], "--sha256: must be"),
        (["--model", "m.gguf", *MISSING[2:], *GENERATE, "--prompt-file", "-"], "must be absolute"),
        ([*MISSING, *GENERATE, "--prompt-file", "-", "--kernel", "abacus"], "not available here"),
        (
            ["--manifest", "none.toml", *GENERATE, "--prompt-file", "-"],
            "the manifest none.toml cannot be read",
        ),
        (["replay", "none.json", *MISSING, "--prompt-file", "-"], "the receipt cannot be read"),
        (["--mode", "tokenize", *MISSING, "--tokens-file", "-", "--special-input", "parse"], "is for text"),
    ],
)
def test_options_come_before_standard_input(arguments: list[str], words: str) -> None:
    """A wrong option is refused although standard input never ends."""
    with waiting(*arguments) as process:
        assert words in error_of(process)


@pytest.mark.parametrize(
    ("flag", "content", "words"),
    [
        ("--prompt-file", b"x" * (2**20 + 1), "larger than 1048576"),
        ("--tokens-file", b"[1" + b" " * 2**20, "larger than 1048576"),
    ],
)
def test_too_much_input_is_refused_before_its_end(flag: str, content: bytes, words: str) -> None:
    """One byte too many is enough: neither the end of the input nor the model is looked for."""
    with waiting(*MISSING, *GENERATE, flag, "-") as process:
        assert process.stdin is not None
        process.stdin.write(content)
        process.stdin.flush()
        assert words in error_of(process)


def test_input_is_read_to_its_end() -> None:
    """With valid options the command waits for the end of its input, and looks for the model only then."""
    with waiting(*MISSING, *GENERATE, "--timeout-seconds", "1", "--prompt-file", "-") as process:
        assert process.stdin is not None
        process.stdin.write(b"x")
        process.stdin.flush()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 4
        assert process.stderr is not None
        assert b"cannot open" in process.stderr.read()


ORDER = [
    # Wrong at once: an option, the input, the model file, the vocabulary. The first of them is named.
    ([*MISSING, *GENERATE, "--tokens-file", "-", "--seed", "1"], b"[x]", 2, "--seed needs"),
    ([*MISSING, *GENERATE, "--tokens-file", "-"], b"[x]", 2, "at index 0"),
    ([*MISSING, *GENERATE, "--tokens-file", "-"], b"[]", 2, "at least one id"),
    ([*MISSING, *GENERATE, "--tokens-file", "-", "--context", "4"], b"[1,1,1]", 2, "prompt has 3 and 2"),
    ([*MISSING, *GENERATE, "--tokens-file", "-"], b"[9999999]", 4, "cannot open"),
    ([*pinned(TRAINED)[:5], "0" * 64, *GENERATE, "--tokens-file", "-"], b"[9999999]", 4, "SHA-256"),
    ([*pinned(TRAINED), *GENERATE, "--tokens-file", "-"], b"[9999999]", 2, "outside the vocabulary"),
    (
        [*pinned(TRAINED), *GENERATE, "--tokens-file", "-", "--stop-tokens", "1024"],
        b"[1]",
        2,
        "stop token 1024",
    ),
    (["--mode", "tokenize", *MISSING, "--prompt-file", "-"], b"\xff", 2, "not valid UTF-8"),
    (["--mode", "tokenize", *MISSING, "--prompt-file", "-"], b"x", 4, "cannot open"),
]


@pytest.mark.parametrize(("arguments", "stdin", "code", "words"), ORDER)
def test_the_first_fault_is_named(
    arguments: list[str], stdin: bytes, code: int, words: str, run: Run
) -> None:
    """Of several faults, the one that comes first in the order ends the command."""
    result = run(*arguments, stdin=stdin)
    assert (result.code, result.out) == (code, b"")
    assert words in result.error
