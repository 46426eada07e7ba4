from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import InvalidInputError
from engine.kernels import KERNEL_NAMES
from engine.workers.connection import WorkerFaultError
from engine.workers.swift_client import ExpectedSwiftWorker
from engine.workers.swift_worker_main import parse_options
from tests.engine.swift.models import CONTEXT, STORIES, STORY, manifest_text, write_endless
from tests.engine.workers.swift_processes import COMMAND, ROOT, SECONDS, Worker, complete, count, text_of
from tests.models import pin_of

SHA256 = "4d4ea19431ad02314796139eab794083297baecee359515c18d053e8cbaa2940"
MODEL = str(Path(__file__).absolute())
INVALID = {"type": "error", "id": None, "error": "invalid_request"}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of the trained model."""
    path = tmp_path_factory.mktemp("swift") / "stories.toml"
    path.write_text(manifest_text(STORIES, "chatml-think"), "utf-8")
    return path


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of the model whose answers never end by themselves; they fill any pipe."""
    folder = tmp_path_factory.mktemp("swift")
    path = folder / "endless.toml"
    path.write_text(manifest_text(write_endless(folder / "endless.gguf"), "chatml"), "utf-8")
    return path


@pytest.fixture(scope="module")
def worker(stories: Path) -> Iterator[Worker]:
    """A ready worker with seed 7, whose ready record was read."""
    with Worker("--manifest", stories, "--seed", 7, "--row-workers", 1) as worker:
        worker.ready = worker.record()
        yield worker


def endless_worker(manifest: Path) -> Worker:
    """A worker with room for answers of 30,000 tokens."""
    return Worker("--manifest", manifest, "--seed", 1, "--context", CONTEXT, "--row-workers", 1)


def test_ready(worker: Worker) -> None:
    """The first record says all that decides an answer, and the bounds."""
    ready = dict(worker.ready)
    assert ready.pop("kernels") in KERNEL_NAMES
    assert ready.pop("row_workers") == 1
    assert ready == {
        "type": "ready",
        "runtime": "bonsai-prism-runtime",
        "protocol": "bonsai-swift-worker-v1",
        "model_sha256": SHA256,
        "model_bytes": 919_136,
        "identity": f"{SHA256}:qwen35:canon-2/16",
        "vocabulary_size": 1024,
        "context": 2048,
        "chat_template": "chatml-think",
        "starts_inside_think": False,
        "stop_tokens": [1021, 1019],
        "sampling": {
            "mode": "swift",
            "temperature": 1.0,
            "top_k": 20,
            "top_p": 0.95,
            "seed": 7,
            "rng": "mt19937-msvc",
        },
        "max_frame_bytes": 1_048_576,
        "max_messages": 4096,
        "max_message_bytes": 262_144,
        "max_delta_bytes": 16_384,
        "max_output_bytes": 4_194_304,
        "max_timeout_seconds": 600,
    }


def test_count_complete_reset(worker: Worker, stories: Path) -> None:
    """A count is the completion's; a reset, another process and plain C on one thread give the same text."""
    worker.send({"op": "reset", "id": 1}, count(2, STORY, 60), complete(3, STORY, 60))  # one after another
    assert worker.record() == {"type": "reset", "id": 1}
    assert worker.record() == {"type": "count", "id": 2, "prompt_token_count": 22}
    first = worker.answer()
    assert {record["id"] for record in first} == {3}
    assert text_of(first).startswith("Once upon a time")
    assert first[-1] == {
        "type": "completion",
        "id": 3,
        "finish": "length",
        "prompt_token_count": 22,
        "cached_token_count": 0,
        "output_token_count": 60,
    }
    worker.send(complete(4, STORY, 60), {"op": "reset", "id": 5}, complete(2**64 - 1, STORY, 60))
    other = worker.answer()
    assert text_of(other) != text_of(first)
    assert other[-1]["cached_token_count"] > 0
    assert worker.record() == {"type": "reset", "id": 5}
    again = worker.answer()
    assert (text_of(again), again[-1]["id"]) == (text_of(first), 2**64 - 1)
    scalar = ("--backend", "scalar", "--row-workers", 1, "--activation-bits", 16)
    with Worker("--manifest", stories, "--seed", 7, *scalar) as second:
        assert second.record()["kernels"] in ("portable", "numpy")
        second.send(complete(1, STORY, 60))
        assert text_of(second.answer()) == text_of(first)


def test_requests_that_are_refused(worker: Worker) -> None:
    """Each gets one error record without a diagnosis, and the next request is answered."""
    conversations: dict[str, list[dict[str, str]]] = {"m": [{"role": "user", "content": "sentinel"}]}
    worker.send(
        b"\n",
        b'{"op":"count","id":1,"sentinel":1}\n',
        {"op": "count", "id": 2, "messages": [], "max_tokens": 1},
        {"op": "count", "id": 3, "messages": conversations["m"], "max_tokens": 5000},
        {"op": "reset", "id": 4},
    )
    assert [worker.record() for _ in range(5)] == [
        INVALID,
        INVALID,
        {"type": "error", "id": 2, "error": "rejected_input"},
        {"type": "error", "id": 3, "error": "context_length_exceeded"},
        {"type": "reset", "id": 4},
    ]


def test_timeout(endless: Path) -> None:
    """After its seconds an answer ends with one error record, and the draws are taken back."""
    with endless_worker(endless) as worker:
        worker.record()
        worker.send(complete(1, STORY, 20), {"op": "reset", "id": 2}, complete(3, STORY, 30_000, seconds=1))
        worker.send(complete(4, STORY, 20))
        text = text_of(worker.answer())
        assert worker.record()["type"] == "reset"
        long = worker.answer()
        assert long[-1] == {"type": "error", "id": 3, "error": "deadline_exceeded"}
        assert text_of(long).startswith(text.rstrip("\ufffd"))
        assert text_of(worker.answer()) == text


def test_closing_the_input_cancels(endless: Path) -> None:
    """A running answer and the ones that wait end as cancelled, and then the worker by itself."""
    with endless_worker(endless) as worker:
        worker.record()
        worker.send(complete(1, STORY, 30_000), complete(2, STORY, 30_000), count(3, STORY, 1))
        assert worker.record()["type"] == "delta"
        worker.input.close()
        assert worker.answer()[-1] == {"type": "error", "id": 1, "error": "cancelled"}
        assert worker.record() == {"type": "error", "id": 2, "error": "cancelled"}
        assert worker.record()["type"] == "count"
        assert worker.output.read() == b""
        assert worker.exit_code() == 0


def test_a_dead_client(endless: Path) -> None:
    """When both pipes close in the middle of an answer, the worker ends by itself."""
    with endless_worker(endless) as worker:
        worker.record()
        worker.send(complete(1, STORY, 30_000))
        assert worker.record()["type"] == "delta"
        worker.output.close()
        worker.input.close()
        assert worker.exit_code() == 6


def test_a_client_that_only_stops_reading(endless: Path) -> None:
    """The worker ends although its input stays open, where its own thread still waits for requests."""
    with endless_worker(endless) as worker:
        worker.record()
        worker.send(complete(1, STORY, 30_000))
        assert worker.record()["type"] == "delta"
        worker.output.close()
        assert worker.exit_code() == 6


def test_a_killed_worker(endless: Path) -> None:
    """Killed in the middle of an answer, it leaves a client that says so, and another worker goes on."""
    pin = pin_of(endless.with_suffix(".gguf"))
    expected = ExpectedSwiftWorker(pin.sha256, 271, CONTEXT, 1)
    with endless_worker(endless) as worker:
        client = worker.client(expected)
        deltas: list[str] = []

        def kill(text: str) -> None:
            deltas.append(text)
            worker.process.kill()

        with pytest.raises(WorkerFaultError, match="has ended"):
            client.complete(STORY, 30_000, 60, kill)
        with pytest.raises(WorkerFaultError, match="failed before"):
            client.reset()
    with endless_worker(endless) as worker:
        text = worker.client(expected).complete(STORY, 10, 60).text
        given = "".join(deltas)[: len(text) - 1]  # the last character may be an unfinished one here
        assert given
        assert text.startswith(given)


def test_frames_that_end_the_worker(stories: Path) -> None:
    """An unterminated last frame is told and a clean end; one of more than 1 MiB is neither."""
    with Worker("--manifest", stories, "--seed", 7) as worker:
        worker.record()
        # The longest frame that is allowed: 1,048,576 bytes with its LF.
        padded = b'{"op":"reset","id":1'.ljust(1_048_574) + b"}\n"
        worker.send(padded, b'{"op":"reset","id":2}')
        worker.input.close()
        assert worker.record() == {"type": "reset", "id": 1}
        assert worker.record() == INVALID
        assert (worker.output.read(), worker.exit_code()) == (b"", 0)
    done = subprocess.run(
        [*COMMAND, "--manifest", str(stories), "--seed", "7"],
        cwd=ROOT,
        input=b" " * 1_048_576 + b"\n",
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b"bonsai-swift-worker: error: a frame has more than 1048575 bytes\n"


def test_another_file_than_the_swift_one() -> None:
    """`--model` alone means the published Swift file, so any other is refused by its length."""
    command = [*COMMAND, "--model", str(STORIES), "--seed", "7"]
    done = subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (4, b"")
    assert done.stderr.decode() == (
        "bonsai-swift-worker: error: the model file has 919136 bytes, but 7206168928 are expected\n"
    )


def test_the_swift_settings() -> None:
    """The defaults are those of the catalogue's entry; options replace them."""
    options = parse_options(["--model", MODEL, "--seed", "0"])
    said = options.conversation
    assert (options.pin.nbytes, options.pin.sha256[:8]) == (7_206_168_928, "5912bb73")
    assert (said.context, said.model_bytes, said.state_bytes) == (8192, 8 << 30, 1 << 30)
    assert (said.checkpoint_bytes, said.output_bytes) == (1 << 30, 4 << 20)
    assert (options.seed, options.kernel, options.threads) == (0, KERNEL_NAMES[-1], None)
    assert options.activation_bits == 16
    sizes = ["--memory-bytes", "5", "--state-bytes", "6", "--checkpoint-bytes", "7", "--output-bytes", "1024"]
    rest = ["--context", "512", "--activation-bits", "8", "--row-workers", "16", "--backend", "scalar"]
    options = parse_options(
        ["--catalogue", "Bonsai-8B-Q1_0", "--model", MODEL, "--seed", "4294967294", *sizes, *rest]
    )
    said = options.conversation
    assert options.pin.nbytes == 1_158_654_496
    assert (said.context, said.model_bytes, said.state_bytes) == (512, 5, 6)
    assert (said.checkpoint_bytes, said.output_bytes) == (7, 1024)
    assert (options.seed, options.threads, options.activation_bits) == (4294967294, 16, 8)
    assert options.kernel == ("portable" if "portable" in KERNEL_NAMES else "numpy")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--model is needed, or --manifest"),
        (["--model", MODEL], "--seed is required"),
        (["--model", MODEL, "--seed", "4294967295"], "--seed: must be an integer from 0 to 4294967294"),
        (["--model", MODEL, "--seed", "1", "--seed", "1"], "--seed is given twice"),
        (["--model", "relative", "--seed", "1"], "absolute"),
        (["--model", MODEL, "--seed", "1", "--row-workers", "17"], "--row-workers"),
        (["--model", MODEL, "--seed", "1", "--backend", "vulkan"], "--backend: must be one of auto, scalar"),
        (["--model", MODEL, "--seed", "1", "--catalogue", "Nobody-1B"], "no such name; it has"),
        (["--model", MODEL, "--seed", "1", "--manifest", "m"], "exclude each other"),
        (["--model", MODEL, "--seed", "1", "--bytes", "7"], "no option --bytes"),
    ],
)
def test_wrong_command_lines(arguments: list[str], words: str) -> None:
    """One sentence that names the option."""
    with pytest.raises(InvalidInputError, match=words):
        parse_options(arguments)


def test_a_manifest_with_an_unknown_template(tmp_path: Path) -> None:
    """It is refused before the model is read."""
    path = tmp_path / "m.toml"
    path.write_text(manifest_text(STORIES, "unheard-of"), "utf-8")
    with pytest.raises(InvalidInputError, match=r"none of qwen3, .*chatml-think"):
        parse_options(["--manifest", str(path), "--seed", "1"])
