"""Standard streams, arguments and paths as systems really hand them to the command: real processes only."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from engine.paths import openable
from tests.engine.driver.commands import COMMAND, environment, execute, pinned
from tests.models import model_path

TRAINED = model_path("trained-qwen35-pq2_0-had")
TOKENIZE = ["--mode", "tokenize", *pinned(TRAINED)]
GENERATE = [*pinned(TRAINED), "--tokens", "1", "--max-tokens", "2", "--checkpoint-bytes", "100000000"]

# The system's encoding is ASCII and nothing corrects it.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX descriptors and byte arguments")
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")


def start(*arguments: str | bytes, shell: str = "", **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Runs the command, through a line of the shell if one is given: `"$@"` is the command there."""
    command: list[str | bytes] = [*COMMAND, *arguments]
    if shell:
        command = ["sh", "-c", shell, "sh", *command]
    env = environment() | variables
    return subprocess.run(command, capture_output=True, env=env, stdin=subprocess.DEVNULL, check=False)


def ids(done: subprocess.CompletedProcess[bytes]) -> list[int]:
    """The token ids of a tokenization."""
    assert done.returncode == 0, done.stderr
    found: list[int] = json.loads(done.stdout)["token_ids"]
    return found


@posix
def test_arguments_are_utf8_in_every_locale() -> None:
    """A prompt's bytes are UTF-8 text, also where the system takes them for ASCII."""
    text = "größe \u2028 \U0001f600"
    assert ids(start(*TOKENIZE, "--prompt", text.encode(), **ASCII)) == ids(
        start(*TOKENIZE, "--prompt", text.encode())
    )
    assert ids(start(*TOKENIZE, "--prompt", text.encode(), **ASCII)) == ids(
        subprocess.run(
            [*COMMAND, *TOKENIZE, "--prompt-file", "-"],
            input=text.encode(),
            capture_output=True,
            env=environment() | ASCII,
            check=False,
        )
    )


@posix
@pytest.mark.parametrize("variables", [{}, ASCII])
def test_arguments_that_are_not_utf8(variables: dict[str, str]) -> None:
    """Other bytes are a wrong input in every locale, not a mistake of the program."""
    done = start(*TOKENIZE, "--prompt", b"gr\xf6\xdfe", **variables)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"prism-inference: error: the prompt is not valid UTF-8\n"


@posix
def test_paths_in_every_locale(tmp_path: Path) -> None:
    """Paths that are not ASCII can be pinned, written, read and named in errors where the system is ASCII."""
    folder = tmp_path / "größe"
    folder.mkdir()
    (folder / "modèle.gguf").write_bytes(TRAINED.read_bytes())
    done = start("pin", str(folder / "modèle.gguf"), **ASCII)
    assert (done.returncode, done.stdout) == (0, f"{folder}/modèle.gguf.toml\n".encode())
    elsewhere = ["--manifest", str(folder / "modèle.gguf.toml"), "--mode", "tokenize", "--prompt", "x"]
    assert ids(start(*elsewhere, **ASCII)) == ids(start(*TOKENIZE, "--prompt", "x"))
    done = start("identify", str(folder / "ohne"), **ASCII)
    assert (
        done.stderr
        == f"prism-inference: error: cannot open {folder}/ohne: No such file or directory\n".encode()
    )


@posix
def test_paths_that_are_not_utf8(tmp_path: Path) -> None:
    """Bytes of a path that are no text are escaped in the message, which stays UTF-8."""
    done = start("identify", os.fsencode(tmp_path) + b"/\xff")
    assert (done.returncode, done.stdout) == (4, b"")
    assert b"/\\xff: No such file" in done.stderr


@posix
@pytest.mark.parametrize(
    ("shell", "arguments", "code", "words"),
    [
        ('"$@" >&-', ["--capabilities"], 6, b"there is no standard output"),
        ('"$@" >&-', GENERATE, 6, b"there is no standard output"),
        ('"$@" <&-', [*TOKENIZE, "--prompt-file", "-"], 2, b"--prompt-file: there is no standard input"),
        ('"$@" <&-', [*TOKENIZE, "--tokens-file", "-"], 2, b"--tokens-file: there is no standard input"),
        ('"$@" <&-', [*TOKENIZE, "--prompt", "x"], 0, b""),
        ('"$@" 2>&-', ["--nonsense"], 2, b""),
        ('"$@" 2>&-', GENERATE, 0, b""),
        ('"$@" >&- 2>&-', ["--capabilities"], 6, b""),
    ],
)
def test_closed_streams(shell: str, arguments: list[str], code: int, words: bytes) -> None:
    """A process that is started without a stream does without it, or says that it cannot."""
    done = start(*arguments, shell=shell)
    assert done.returncode == code
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"error" not in done.stdout


@posix
@full
@pytest.mark.parametrize("arguments", [GENERATE, ["--help"], ["replay", "--help"], ["identify", "--help"]])
def test_full_output(arguments: list[str]) -> None:
    """Output that cannot be stored is an error, help too."""
    done = start(*arguments, shell='"$@" >/dev/full')
    assert done.returncode == 6
    assert done.stderr == b"prism-inference: error: the output cannot be written: No space left on device\n"


@posix
@full
def test_full_error_output() -> None:
    """An error that cannot be told still has its code."""
    assert start("--nonsense", shell='"$@" 2>/dev/full').returncode == 2


@posix
@pytest.mark.parametrize("arguments", [["--capabilities"], ["--help"], GENERATE])
def test_a_reader_that_left_is_no_news(arguments: list[str]) -> None:
    """Writing to a pipe that nobody reads ends the command quietly, with its own code."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, env=environment(), check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (6, b"")


def test_pipes_are_binary(tmp_path: Path) -> None:
    """CR, LF, NUL, Ctrl-Z and a byte-order mark arrive through a pipe as they do from a file."""
    content = b"\xef\xbb\xbfone\r\ntwo\rthree\n\x00\x1afour\n\n"
    (tmp_path / "p.txt").write_bytes(content)
    piped = execute(*TOKENIZE, "--prompt-file", "-", stdin=content)
    filed = execute(*TOKENIZE, "--prompt-file", str(tmp_path / "p.txt"))
    assert piped.records[0]["token_ids"] == filed.records[0]["token_ids"]
    bare = execute(*TOKENIZE, "--prompt-file", "-", stdin=content.replace(b"\r", b""))
    assert bare.records[0]["token_count"] < piped.records[0]["token_count"]
    assert piped.out.count(b"\n") == 1
    assert b"\r" not in piped.out


def test_long_paths(tmp_path: Path) -> None:
    """Model, manifest, prompt, receipt and logits may lie deeper than 260 characters."""
    folder = tmp_path / "/".join(["d" * 60] * 5)
    openable(folder).mkdir(parents=True)
    model, manifest = folder / "m.gguf", folder / "m.toml"
    openable(model).write_bytes(TRAINED.read_bytes())
    openable(folder / "p.txt").write_bytes(b"x")
    assert execute("pin", str(model), "--output", str(manifest)).code == 0
    base = ["--manifest", str(manifest), "--prompt-file", str(folder / "p.txt")]
    made = [*base, "--max-tokens", "2", "--checkpoint-bytes", "100000000"]
    assert execute(*made, "--receipt", str(folder / "r.json")).code == 0
    assert execute("replay", str(folder / "r.json"), *base).code == 0
    assert execute(*base, "--mode", "score", "--save-logits", str(folder / "l.npy")).code == 0


@posix
@pytest.mark.parametrize("flag", ["--prompt-file", "--tokens-file"])
def test_no_more_than_one_byte_too_many(flag: str, tmp_path: Path) -> None:
    """Of an input that is too large, 1 MiB and one byte are taken from standard input, and nothing more."""
    path = tmp_path / "large"
    path.write_bytes(b" " * 3_000_000)
    with path.open("rb") as stream:
        done = subprocess.run(
            [*COMMAND, *TOKENIZE, flag, "-"],
            stdin=stream,
            capture_output=True,
            env=environment(),
            check=False,
        )
        taken = os.lseek(stream.fileno(), 0, os.SEEK_CUR)
    assert done.returncode == 2
    assert b"larger than 1048576 bytes" in done.stderr
    assert taken == 2**20 + 1
