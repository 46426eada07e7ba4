from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.artifact import Pin
from engine.workers import token_worker_main
from engine.workers.token_worker_main import main
from tests.engine.workers.conversations import (
    ROOT,
    arguments_for,
    environment,
    ready_line,
    started,
    talk,
)
from tests.models import model_path, pin_of

TEXT = "Draft a scene."
COUNT = f'{{"id":1,"op":"count","text":"{TEXT}"}}\n'.encode()
COUNTED = {"type": "count", "id": 1, "prompt_token_count": 14}
INVALID = {"type": "error", "id": None, "error": "invalid_request"}

Run = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command inside the test with nothing on standard input: exit code, output, errors."""

    def command(*arguments: str) -> tuple[int, bytes, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return code, out, err.decode("utf-8")

    return command


def test_a_conversation(pin: Pin, tmp_path: Path) -> None:
    """Ready comes before any input, answers in order, and the end of the input ends the worker with 0."""
    with started(*arguments_for(pin), folder=tmp_path) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline()) == ready_line(pin)
        worker.stdin.write(COUNT)
        worker.stdin.flush()
        assert json.loads(worker.stdout.readline()) == COUNTED
        output, errors = worker.communicate(b'{"id":2,"op":"encode_tokens","token_ids":[4,4]}\r\n\n')
    records = [json.loads(line) for line in output.splitlines()]
    assert records == [{"type": "encoded", "id": 2, "prompt_token_count": 2, "token_ids": [4, 4]}, INVALID]
    assert (worker.returncode, errors) == (0, b"")


def test_bytes_are_not_translated(pin: Pin, tmp_path: Path) -> None:
    """Line ends and bytes that a text stream would change, under a narrow encoding, come through exactly."""
    text = "\u20ac\u2028\x85\x1a"
    request = f'{{"id":1,"op":"encode","text":{json.dumps(text, ensure_ascii=False)}}}\n'
    with started(*arguments_for(pin), folder=tmp_path, PYTHONIOENCODING="ascii") as worker:
        output, _ = worker.communicate(request.encode())
    assert b"\r" not in output
    assert json.loads(output.split(b"\n")[1])["token_ids"] == list(text.encode())


@pytest.mark.parametrize("rest", [b'{"id":2', COUNT[:-1]])
def test_an_unterminated_frame(rest: bytes, pin: Pin, tmp_path: Path) -> None:
    """It is one more invalid request, and the worker ends with 0."""
    code, records, errors = talk(pin, COUNT + rest, tmp_path)
    assert (code, records[1:], errors) == (0, [COUNTED, INVALID], b"")


def test_an_oversized_frame(pin: Pin, tmp_path: Path) -> None:
    """The worker ends with an error, without waiting for the frame's end or the input's."""
    with started(*arguments_for(pin), folder=tmp_path) as worker:
        assert worker.stdin is not None
        assert worker.stderr is not None
        worker.stdin.write(COUNT + b"x" * 201)
        worker.stdin.flush()
        assert worker.wait() == 2  # its input is still open
        assert worker.stderr.read() == b"bonsai-token-worker: error: a frame has more than 200 bytes\n"


def test_refused_text_is_told_to_nobody(pin: Pin, tmp_path: Path) -> None:
    """Neither records nor standard error hold anything of a request that is refused."""
    sent = [
        b'{"id":1,"op":"count","text":"secret secret secret secret secret"}\n',
        b'{"id":1,"op":"secret","text":"secret"}\n',
        b'{"secret":"secret\n',
        b"secret" * 100,
    ]
    code, records, errors = talk(pin, b"".join(sent), tmp_path)
    assert [record["type"] for record in records] == ["ready", "error", "error", "error"]
    assert b"secret" not in json.dumps(records).encode() + errors
    assert code == 2


def test_a_manifest_names_the_model_too(pin: Pin, tmp_path: Path) -> None:
    """It stands for path, length and SHA-256."""
    manifest = tmp_path / "m.toml"
    manifest.write_text(
        f"schema = 1\npath = {json.dumps(str(pin.path))}\nbytes = {pin.nbytes}\nsha256 = '{pin.sha256}'\n"
    )
    options = arguments_for(pin, model=None, bytes=None, sha256=None, manifest=str(manifest))
    with started(*options, folder=tmp_path) as worker:
        output, _ = worker.communicate(COUNT)
    assert [json.loads(line) for line in output.splitlines()] == [ready_line(pin), COUNTED]


def test_a_model_with_weights(tmp_path: Path) -> None:
    """The whole file is verified and only its metadata needs to fit the budget."""
    trained = pin_of(model_path("trained-qwen35-pq2_0-had"))
    code, records, _ = talk(trained, COUNT, tmp_path, memory_bytes="100000")
    assert (code, records[0]["vocabulary_size"], records[1]["type"]) == (0, 1024, "count")
    code, records, errors = talk(trained, COUNT, tmp_path, memory_bytes="10000")
    assert (code, records) == (3, [])
    assert b"larger than the 10000 bytes" in errors


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"memory_bytes": None}, 2, "--memory-bytes is required"),
        ({"context": None}, 2, "--context is required"),
        ({"reserved_output_tokens": None}, 2, "--reserved-output-tokens is required"),
        ({"special_input": None}, 2, "--special-input is required"),
        ({"insert_special": None}, 2, "--insert-special is required"),
        ({"max_frame_bytes": None}, 2, "--max-frame-bytes is required"),
        ({"model": None}, 2, "--model, --bytes and --sha256 together"),
        ({"bytes": None}, 2, "--model, --bytes and --sha256 together"),
        ({"sha256": None}, 2, "--model, --bytes and --sha256 together"),
        ({"manifest": "m.toml"}, 2, "--manifest and --model exclude each other"),
        ({"model": "vocabulary.gguf"}, 2, "the model path must be absolute"),
        ({"memory_bytes": "0"}, 2, "--memory-bytes: must be an integer"),
        ({"context": "0"}, 2, "--context: must be an integer from 1 to 262144"),
        ({"context": "262145"}, 2, "--context: must be an integer from 1 to 262144"),
        ({"context": "1e3"}, 2, "--context: must be an integer"),
        ({"reserved_output_tokens": "32"}, 2, "32 tokens are reserved for output"),
        ({"reserved_output_tokens": "-1"}, 2, "--reserved-output-tokens"),
        ({"special_input": "Parse"}, 2, "--special-input: must be one of literal, parse"),
        ({"insert_special": "always"}, 2, "--insert-special: must be one of none, model"),
        ({"max_frame_bytes": "0"}, 2, "--max-frame-bytes: must be an integer from 1 to 1048576"),
        ({"max_frame_bytes": "1048577"}, 2, "--max-frame-bytes: must be an integer from 1 to 1048576"),
        ({"max_frame": "100"}, 2, "there is no option --max-frame"),
        ({"memory_bytes": "1000"}, 3, "larger than the 1000 bytes"),
        ({"bytes": "5"}, 4, "but 5 are expected"),
        ({"sha256": "0" * 64}, 4, "the length agrees, but the model file's SHA-256 is"),
        ({"model": str(ROOT / "no such file")}, 4, "cannot open"),
    ],
)
def test_failures_before_ready(
    changes: dict[str, str | None], code: int, message: str, pin: Pin, run: Run
) -> None:
    """One line on standard error, the driver's exit code, and nothing on standard output."""
    result, out, err = run(*arguments_for(pin, **changes))
    assert (result, out, err.count("\n")) == (code, b"", 1)
    assert err.startswith("bonsai-token-worker: error: ")
    assert message in err


def test_every_setting_once(pin: Pin, run: Run) -> None:
    """Repetition, shortened names and stray words are refused, also where the value would be the same."""
    complete = arguments_for(pin)
    for flag, value in zip(complete[::2], complete[1::2], strict=True):
        code, out, err = run(*complete, flag, value)
        assert (code, out, f"{flag} is given twice" in err) == (2, b"", True)
    for extra in ("--conte=5", "word", "--"):
        assert run(*complete, extra)[:2] == (2, b"")


def test_unsupported_model(run: Run, tmp_path: Path) -> None:
    """A verified file that is no supported tokenizer has the driver's code for that."""
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF of another kind")
    code, out, err = run(*arguments_for(pin_of(other)))
    assert (code, out, err.count("\n")) == (5, b"", 1)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """--help prints the whole startup contract and the operations, and nothing else happens."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    out = capsys.readouterr().out
    assert caught.value.code == 0
    for word in (
        *arguments_for(Pin(ROOT, 1, "0" * 64))[::2],
        "encode_tokens",
        "exit codes",
        "262144",
        "1048576",
    ):
        assert word in out


def test_unexpected_errors(run: Run, pin: Pin, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory and mistakes of the program end the worker with one line that holds no data."""
    for error, expected in ((MemoryError(), 3), (KeyError("secret"), 1), (KeyboardInterrupt(), 130)):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(token_worker_main, "serve", fail)
        code, out, err = run(*arguments_for(pin))
        assert (code, out, err.count("\n"), "secret" in err) == (expected, b"", 1, False)


def test_a_client_that_stops_reading(pin: Pin, tmp_path: Path) -> None:
    """A worker whose output nobody reads ends quietly, with the code for output that cannot be written."""
    with started(*arguments_for(pin), folder=tmp_path) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.readline()
        worker.stdout.close()
        worker.stdin.write(COUNT)
        worker.stdin.flush()
        assert worker.wait() == 6
        assert worker.stderr.read() == b""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such descriptors")
def test_an_input_that_cannot_be_read(pin: Pin, tmp_path: Path) -> None:
    """A failing input ends the worker with one line, after the ready record."""
    with Path(os.devnull).open("wb") as unreadable:
        done = subprocess.run(
            [sys.executable, "-m", token_worker_main.__name__, *arguments_for(pin)],
            cwd=tmp_path,
            env=environment(),
            stdin=unreadable,
            capture_output=True,
            check=False,
        )
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr.count(b"\n")) == (6, 1, 1)
    assert done.stderr.startswith(b"bonsai-token-worker: error: standard input or output failed")


@pytest.mark.skipif(os.name != "posix", reason="a shell that closes descriptors")
@pytest.mark.parametrize(("closed", "errors"), [("<&-", 1), (">&-", 1), ("2>&-", 0)])
def test_missing_streams(closed: str, errors: int, pin: Pin, tmp_path: Path) -> None:
    """Without input or output a worker does not start; without standard error no message goes elsewhere."""
    command = [sys.executable, "-m", token_worker_main.__name__, *arguments_for(pin, context="0")]
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=tmp_path,
        env=environment(),
        input=b"",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", errors)


CLIENT = """
import subprocess, sys, time
worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(worker.stdout.readline().decode(), end="", flush=True)
worker.stdin.write(b'{"id":1,"op":"count","text":"half a requ')
worker.stdin.flush()
time.sleep(600)
"""


def test_a_client_that_dies(pin: Pin, tmp_path: Path) -> None:
    """A client that is killed inside a request leaves a worker that ends by itself."""
    worker = [sys.executable, "-m", token_worker_main.__name__, *arguments_for(pin)]
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, *worker],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        assert json.loads(client.stdout.readline())["type"] == "ready"
        client.kill()
        # The worker has inherited standard error, so this ends only when the worker has ended too.
        assert client.stderr.read() == b""
