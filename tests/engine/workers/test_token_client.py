from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from engine.artifact import Pin
from engine.errors import ContextError, EngineError, InvalidInputError
from engine.tokenization import Encoded
from engine.workers.connection import WorkerFaultError, WorkerMismatchError
from engine.workers.frames import OversizedFrameError
from engine.workers.token_client import ExpectedWorker, RejectedInputError, TokenClient
from engine.workers.token_protocol import WorkerConfig
from tests.engine.workers.conversations import (
    CONFIG,
    FRAME_BYTES,
    arguments_for,
    expected_worker,
    ready_line,
    started,
)

PIN = Pin(Path(__file__).absolute(), 1, "5" * 64)
EXPECTED = expected_worker(PIN)
COUNTED = {"type": "count", "id": 1, "prompt_token_count": 3}
ENCODED = {"type": "encoded", "id": 1, "prompt_token_count": 2, "token_ids": [7, 270]}
REJECTED = {"type": "error", "id": 1, "error": "rejected_input"}

Ask = Callable[[TokenClient], Any]
ASK: dict[str, Ask] = {
    "count": lambda client: client.count("abc"),
    "encode": lambda client: client.encode("ab"),
    "count_tokens": lambda client: client.count_tokens([1, 2, 3]),
    "encode_tokens": lambda client: client.encode_tokens([7, 270]),
}


def lines(*records: object) -> bytes:
    """Records as a worker writes them; bytes as they are."""
    return b"".join(
        record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n" for record in records
    )


def scripted(*records: object, expected: ExpectedWorker = EXPECTED) -> tuple[TokenClient, io.BytesIO]:
    """A client of a worker that is ready and then says what it is told to; and what the client sent."""
    requests = io.BytesIO()
    return TokenClient.connect(io.BytesIO(lines(ready_line(PIN), *records)), requests, expected), requests


def assert_disabled(client: TokenClient, requests: io.BytesIO) -> None:
    """The client refuses every operation and sends nothing any more."""
    sent = requests.getvalue()
    for ask in ASK.values():
        with pytest.raises(WorkerFaultError, match="has failed before"):
            ask(client)
    assert requests.getvalue() == sent


def test_the_four_operations() -> None:
    """Each sends exactly its fields under the next id and hands back what was answered."""
    client, requests = scripted(COUNTED, ENCODED | {"id": 2}, COUNTED | {"id": 3}, ENCODED | {"id": 4})
    assert client.count("abc\n\u20ac") == 3
    assert client.encode("") == Encoded((7, 270), 32, 8)
    assert client.count_tokens((1, 2, 3)) == 3
    assert client.encode_tokens([7, 270]) == Encoded((7, 270), 32, 8)
    assert requests.getvalue().decode().split("\n") == [
        '{"id":1,"op":"count","text":"abc\\n\u20ac"}',
        '{"id":2,"op":"encode","text":""}',
        '{"id":3,"op":"count_tokens","token_ids":[1,2,3]}',
        '{"id":4,"op":"encode_tokens","token_ids":[7,270]}',
        "",
    ]


def test_no_tokens() -> None:
    """Empty text and empty sequences are asked about like others."""
    nothing = {"prompt_token_count": 0}
    client, _ = scripted(COUNTED | nothing, ENCODED | nothing | {"id": 2, "token_ids": []})
    assert client.count_tokens([]) == 0
    assert client.encode_tokens([]).token_ids == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_sha256", "6" * 64),
        ("model_sha256", None),
        ("vocabulary_size", 270),
        ("vocabulary_size", 271.0),
        ("context", 33),
        ("reserved_output_tokens", 7),
        ("special_input", "parse"),
        ("insert_special", "model"),
        ("max_frame_bytes", 201),
        ("max_frame_bytes", True),
        ("more", 1),
    ],
)
def test_a_worker_that_is_another(name: str, value: object) -> None:
    """A ready record that differs anywhere is refused before anything is sent."""
    requests = io.BytesIO()
    ready = ready_line(PIN) | {name: value}
    with pytest.raises(WorkerMismatchError, match="another model or with other settings"):
        TokenClient.connect(io.BytesIO(lines(ready, COUNTED)), requests, EXPECTED)
    missing = {key: item for key, item in ready.items() if key != name}
    if name != "more":
        with pytest.raises(WorkerMismatchError):
            TokenClient.connect(io.BytesIO(lines(missing, COUNTED)), requests, EXPECTED)
    assert requests.getvalue() == b""


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\n",
        b"loading\n",
        lines(COUNTED),
        lines(ready_line(PIN) | {"protocol": "bonsai-token-worker-v2"}),
        lines(ready_line(PIN) | {"type": "Ready"}),
        lines(ready_line(PIN))[:-1],
        lines(ready_line(PIN)).replace(b"{", b'{"type":"ready",'),
        lines(ready_line(PIN) | {"padding": "x" * 1000}),
    ],
)
def test_what_is_no_ready_record(first: bytes) -> None:
    """Nothing is sent to a program that does not open with this protocol's ready record."""
    requests = io.BytesIO()
    with pytest.raises(WorkerFaultError) as caught:
        TokenClient.connect(io.BytesIO(first), requests, EXPECTED)
    assert not isinstance(caught.value, WorkerMismatchError)
    assert requests.getvalue() == b""


FAULTS: list[tuple[str, object]] = [
    *(("count", COUNTED | {"id": wrong}) for wrong in (0, 2, None, True, 1.0, "1")),
    *(("count", COUNTED | {"prompt_token_count": wrong}) for wrong in (-1, 25, 3.0, True, "3", None, [3])),
    *(("encode", ENCODED | {"prompt_token_count": wrong}) for wrong in (0, 1, 3, 2.0)),
    *(("encode", ENCODED | {"token_ids": wrong}) for wrong in ([7], [7, 8, 9], [], None, "77", {"0": 7})),
    *(("encode", ENCODED | {"token_ids": [7, wrong]}) for wrong in (271, -1, 8.0, True, None, "8", [8])),
    ("encode", ENCODED | {"prompt_token_count": 25, "token_ids": [7] * 25}),
    *(("count_tokens", COUNTED | {"prompt_token_count": wrong}) for wrong in (2, 4, 0)),
    *(("encode_tokens", ENCODED | {"token_ids": wrong}) for wrong in ([270, 7], [7, 269], [7, 270.0])),
    ("encode_tokens", ENCODED | {"prompt_token_count": 3, "token_ids": [7, 270, 270]}),
    ("encode_tokens", ENCODED | {"prompt_token_count": 1, "token_ids": [7]}),
    ("count", ENCODED),
    ("encode", COUNTED | {"prompt_token_count": 2}),
    ("count", COUNTED | {"token_ids": [1, 2, 3]}),
    ("count", COUNTED | {"type": "encoded"}),
    ("count", COUNTED | {"type": None}),
    ("count", COUNTED | {"more": 1}),
    ("count", {"type": "count", "id": 1}),
    ("count", {"id": 1, "prompt_token_count": 3}),
    ("encode", {"type": "encoded", "id": 1, "prompt_token_count": 2}),
    ("count", {}),
    ("count", REJECTED | {"id": 2}),
    ("count", REJECTED | {"id": None}),
    ("count", REJECTED | {"id": True}),
    ("count", REJECTED | {"error": "invalid_request"}),
    ("count", REJECTED | {"error": "busy"}),
    ("count", REJECTED | {"message": "secret"}),
    ("count", {"type": "error", "id": None, "error": "invalid_request"}),
    ("count", ready_line(PIN)),
    ("count", b"\n"),
    ("count", b"secret\n"),
    ("count", b"[1]\n"),
    ("count", b'{"type":"count","id":1,"prompt_token_count":3\n'),
    ("count", b'{"type":"count","id":1,"id":1,"prompt_token_count":3}\n'),
    ("count", b'{"type":"count","id":1,"prompt_token_count":3,"\xff":1}\n'),
    ("count", lines(COUNTED)[:-2] + b" " * 1000 + b"}\n"),
    ("count", lines(COUNTED)[:-1]),
    ("count", b""),
]


@pytest.mark.parametrize(("operation", "said"), FAULTS)
def test_answers_that_do_not_add_up(operation: str, said: object) -> None:
    """Any inconsistency disables the client for good, although correct answers follow; nothing is quoted."""
    client, requests = scripted(said, COUNTED | {"id": 2}, COUNTED)
    with pytest.raises(WorkerFaultError) as caught:
        ASK[operation](client)
    assert "secret" not in str(caught.value)
    assert_disabled(client, requests)


def test_rejected_input_is_no_fault() -> None:
    """The worker's refusal of one request leaves the client ready for the next."""
    client, _ = scripted(REJECTED, COUNTED | {"id": 2}, REJECTED | {"id": 3}, ENCODED | {"id": 4})
    with pytest.raises(RejectedInputError, match=r"^the worker refused the input$"):
        client.count("abc")
    assert client.count("abc") == 3
    with pytest.raises(RejectedInputError):
        client.encode("ab")
    assert client.encode("ab").token_ids == (7, 270)


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda client: client.count("half \ud83d"), InvalidInputError),
        (lambda client: client.encode("x" * FRAME_BYTES), OversizedFrameError),
        (lambda client: client.count_tokens([0] * 25), ContextError),
        (lambda client: client.encode_tokens([0, 271]), InvalidInputError),
        (lambda client: client.encode_tokens([-1]), InvalidInputError),
        (lambda client: client.count_tokens([True]), InvalidInputError),
        (lambda client: client.count_tokens([1.0]), InvalidInputError),
    ],
)
def test_what_is_refused_without_asking(refused: Ask, error: type[EngineError]) -> None:
    """Nothing is sent and no id is used up, and the next request works."""
    client, requests = scripted(COUNTED)
    with pytest.raises(error):
        refused(client)
    assert requests.getvalue() == b""
    assert client.count("abc") == 3


def test_the_bound_on_requests() -> None:
    """A request of exactly the worker's bound is sent, one byte more is not."""
    overhead = len(b'{"id":1,"op":"count","text":""}')
    client, requests = scripted(COUNTED)
    with pytest.raises(OversizedFrameError, match="201 bytes is more than the 200"):
        client.count("x" * (FRAME_BYTES - overhead + 1))
    assert client.count("x" * (FRAME_BYTES - overhead)) == 3
    assert len(requests.getvalue()) == FRAME_BYTES + 1


def test_the_bound_on_responses() -> None:
    """It is the client's own: a record of exactly so many bytes is read, one byte more is a fault."""
    size = len(lines(ready_line(PIN))) - 1
    requests = io.BytesIO()
    for bound, fits in ((size, True), (size - 1, False)):
        expected = expected_worker(PIN, bound)
        if fits:
            assert TokenClient.connect(io.BytesIO(lines(ready_line(PIN))), requests, expected)
        else:
            with pytest.raises(WorkerFaultError, match="longer than the bound"):
                TokenClient.connect(io.BytesIO(lines(ready_line(PIN))), requests, expected)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model_sha256": "A" * 64}, "model_sha256"),
        ({"model_sha256": "a" * 63}, "model_sha256"),
        ({"vocabulary_size": 0}, "vocabulary_size"),
        ({"response_frame_bytes": 0}, "response_frame_bytes"),
        ({"response_frame_bytes": (1 << 20) + 1}, "response_frame_bytes"),
    ],
)
def test_expectations_that_no_worker_meets(changes: dict[str, Any], field: str) -> None:
    """They are refused before there is a worker; both frame bounds are 1 byte to 1 MiB."""
    arguments: dict[str, Any] = {
        "model_sha256": "a" * 64,
        "vocabulary_size": 1,
        "config": CONFIG,
        "response_frame_bytes": 1,
    }
    ExpectedWorker(**arguments)
    with pytest.raises(InvalidInputError) as caught:
        ExpectedWorker(**{**arguments, **changes})
    assert caught.value.field == field
    for bound in (0, (1 << 20) + 1):
        with pytest.raises(InvalidInputError, match="1 to 1048576"):
            WorkerConfig(CONFIG.policy, bound)


class Failing(io.BytesIO):
    """A stream that works until it is told not to."""

    fails: Sequence[type[BaseException]] = ()

    def write(self, content: Any, /) -> int:
        """Half of the content, then the failure."""
        if self.fails:
            super().write(bytes(content)[:5])
            raise self.fails[0]
        return super().write(content)


@pytest.mark.parametrize("failure", [BrokenPipeError, TimeoutError, ValueError, KeyboardInterrupt])
def test_requests_that_cannot_be_sent(failure: type[BaseException]) -> None:
    """A failed or interrupted write disables the client, as half a request may be on its way."""
    requests = Failing()
    responses = io.BytesIO(lines(ready_line(PIN), COUNTED))
    client = TokenClient.connect(responses, requests, EXPECTED)
    requests.fails = [failure]
    with pytest.raises(failure if failure is KeyboardInterrupt else WorkerFaultError):
        client.count("abc")
    requests.fails = ()
    assert_disabled(client, requests)


def test_closed_streams() -> None:
    """Streams that the caller has closed are a fault, not a crash."""
    for closed in range(2):
        streams = io.BytesIO(lines(ready_line(PIN), COUNTED)), io.BytesIO()
        client = TokenClient.connect(*streams, EXPECTED)
        streams[closed].close()
        with pytest.raises(WorkerFaultError):
            client.count("abc")


def test_into_parts() -> None:
    """The caller gets its own streams back, and the client refuses from then on."""
    responses, requests = io.BytesIO(lines(ready_line(PIN), b"rest")), io.BytesIO()
    client = TokenClient.connect(responses, requests, EXPECTED)
    parts = client.into_parts()
    assert parts[0] is responses
    assert parts[1] is requests
    assert parts[0].read() == b"rest"
    assert_disabled(client, requests)


def ask_everything(client: TokenClient, results: list[Any]) -> None:
    """All operations, a refusal among them; results are collected as they come."""
    results.append(client.count("hello"))
    results.append(client.encode("Draft").token_ids)
    try:
        client.encode("x" * 30)
    except RejectedInputError:
        results.append("rejected")
    results.append(client.count_tokens([3, 3]))
    results.append(client.encode_tokens([270, 0]).token_ids)


RESULTS = [1, tuple(b"Draft"), "rejected", 2, (270, 0)]


class Recording(io.RawIOBase):
    """Passes a stream on and keeps what went through."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.seen = bytearray()

    def readline(self, size: int | None = -1, /) -> bytes:
        """One line or part of it."""
        line = self.stream.readline(-1 if size is None else size)
        self.seen += line
        return line


def test_a_worker_that_dies_at_any_byte(pin: Pin, tmp_path: Path) -> None:
    """Wherever a real worker's output is cut, the client reports it, and a new worker answers everything."""
    with started(*arguments_for(pin), folder=tmp_path) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        recording: Any = Recording(worker.stdout)
        results: list[Any] = []
        ask_everything(TokenClient.connect(recording, worker.stdin, expected_worker(pin)), results)
        assert results == RESULTS
    output = bytes(recording.seen)
    assert output.count(b"\n") == 6
    for cut in range(len(output)):
        found: list[Any] = []
        with pytest.raises(WorkerFaultError, match=r"has ended( inside a record)?$"):
            ask_everything(
                TokenClient.connect(io.BytesIO(output[:cut]), io.BytesIO(), expected_worker(pin)), found
            )
        assert found == RESULTS[: max(0, output[:cut].count(b"\n") - 1)]
        replaced: list[Any] = []
        ask_everything(TokenClient.connect(io.BytesIO(output), io.BytesIO(), expected_worker(pin)), replaced)
        assert replaced == RESULTS


def test_a_worker_that_is_killed(pin: Pin, tmp_path: Path) -> None:
    """The client of a real process that is gone reports it and stays disabled; its successor works."""
    for _ in range(2):
        with started(*arguments_for(pin), folder=tmp_path) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            client = TokenClient.connect(worker.stdout, worker.stdin, expected_worker(pin))
            assert client.count("hello world") == 2
            worker.kill()
            worker.wait()
            for _ in range(2):
                with pytest.raises(WorkerFaultError):
                    client.count("hello")
