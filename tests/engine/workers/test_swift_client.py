from __future__ import annotations

import io
import json
from typing import Any

import pytest

from engine.chat import Message
from engine.errors import InvalidInputError
from engine.workers.connection import WorkerFaultError, WorkerMismatchError
from engine.workers.frames import OversizedFrameError
from engine.workers.swift_client import ExpectedSwiftWorker, RequestFailedError, SwiftAnswer, SwiftClient

SHA256 = "5912bb739217cf25b4283a098c7b893d9baff36bdf2e72d3dbf4cb999d5633d5"
READY: dict[str, Any] = {
    "type": "ready",
    "runtime": "bonsai-prism-runtime",
    "protocol": "bonsai-swift-worker-v1",
    "model_sha256": SHA256,
    "model_bytes": 7206168928,
    "identity": f"{SHA256}:qwen35:canon-2/16",
    "kernels": "portable",
    "row_workers": 1,
    "vocabulary_size": 248320,
    "context": 8192,
    "chat_template": "qwen3.8",
    "starts_inside_think": True,
    "stop_tokens": [248046, 248044, 248063, 248064, 248065],
    "sampling": {
        "mode": "swift",
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
        "seed": 1,
        "rng": "mt19937-msvc",
    },
    "max_output_bytes": 4194304,
    "max_frame_bytes": 1048576,
    "max_messages": 4096,
    "max_message_bytes": 262144,
    "max_delta_bytes": 16384,
    "max_timeout_seconds": 600,
}
EXPECTED = ExpectedSwiftWorker(SHA256, 248_320, 8192, 1)
HELLO = [Message("user", "Hello")]
COUNTED: dict[str, Any] = {"type": "count", "id": 1, "prompt_token_count": 57}
COMPLETION: dict[str, Any] = {
    "type": "completion",
    "id": 1,
    "finish": "stop",
    "prompt_token_count": 57,
    "cached_token_count": 0,
    "output_token_count": 3,
}


def lines(*records: object) -> bytes:
    """Records as a worker writes them; bytes as they are."""
    return b"".join(
        record if isinstance(record, bytes) else json.dumps(record, ensure_ascii=False).encode() + b"\n"
        for record in records
    )


def delta(text: object, request_id: int = 1) -> dict[str, Any]:
    """A delta record."""
    return {"type": "delta", "id": request_id, "text": text}


def scripted(*records: object) -> tuple[SwiftClient, io.BytesIO]:
    """A client of a worker that is ready and then says what it is told to; and what the client sent."""
    requests = io.BytesIO()
    return SwiftClient.connect(io.BytesIO(lines(READY, *records)), requests, EXPECTED), requests


def assert_disabled(client: SwiftClient, requests: io.BytesIO) -> None:
    """The client refuses every operation and sends nothing any more."""
    sent = requests.getvalue()
    for ask in (
        lambda: client.count(HELLO, 1),
        lambda: client.complete(HELLO, 1, 1),
        client.reset,
    ):
        with pytest.raises(WorkerFaultError, match="failed before"):
            ask()
    assert requests.getvalue() == sent


def test_a_conversation() -> None:
    """Each operation sends exactly its fields under the next id; deltas join to the answer's text."""
    client, requests = scripted(
        COUNTED,
        delta("<think> a", 2),
        delta("é😀", 2),
        COMPLETION | {"id": 2, "cached_token_count": 56},
        {"type": "reset", "id": 3},
    )
    assert client.count([*HELLO, Message("assistant", "b", "c")], 8) == 57
    pieces: list[str] = []
    answer = client.complete(HELLO, 8, 600, pieces.append)
    assert answer == SwiftAnswer("<think> aé😀", "stop", 57, 56, 3)
    assert pieces == ["<think> a", "é😀"]
    client.reset()
    assert client.ready["starts_inside_think"] is True
    assert [json.loads(line) for line in requests.getvalue().splitlines()] == [
        {
            "op": "count",
            "id": 1,
            "messages": [
                {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "b", "reasoning_content": "c"},
            ],
            "max_tokens": 8,
        },
        {
            "op": "complete",
            "id": 2,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 8,
            "timeout_seconds": 600,
        },
        {"op": "reset", "id": 3},
    ]


def test_output_cut_at_any_byte() -> None:
    """Wherever the worker dies, the client says so, is of no more use, and calls no cut answer an answer."""
    recorded = lines(READY, COUNTED, delta("a é", 2), delta("😀", 2), COMPLETION | {"id": 2})
    ready = len(lines(READY))
    for cut in range(ready):
        with pytest.raises(WorkerFaultError, match="has ended"):
            SwiftClient.connect(io.BytesIO(recorded[:cut]), io.BytesIO(), EXPECTED)
    for cut in range(ready, len(recorded) + 1):
        requests = io.BytesIO()
        client = SwiftClient.connect(io.BytesIO(recorded[:cut]), requests, EXPECTED)
        pieces: list[str] = []

        def converse(client: SwiftClient = client, pieces: list[str] = pieces) -> SwiftAnswer:
            client.count(HELLO, 8)
            return client.complete(HELLO, 8, 60, pieces.append)

        if cut == len(recorded):
            assert converse().text == "".join(pieces) == "a é😀"
            break
        with pytest.raises(WorkerFaultError, match="has ended"):
            converse()
        assert "a é😀".startswith("".join(pieces))
        assert_disabled(client, requests)


@pytest.mark.parametrize(
    "word", ["rejected_input", "context_length_exceeded", "deadline_exceeded", "cancelled", "engine_fault"]
)
def test_errors_of_a_request(word: str) -> None:
    """They end this request alone: its text is void, and the next one is asked on the same connection."""
    client, _ = scripted(delta("abc"), {"type": "error", "id": 1, "error": word}, COUNTED | {"id": 2})
    with pytest.raises(RequestFailedError) as caught:
        client.complete(HELLO, 8, 60)
    assert caught.value.error == word
    assert client.count(HELLO, 8) == 57


@pytest.mark.parametrize(
    "records",
    [
        [{"type": "count"}],
        [COUNTED | {"id": 2}],
        [COUNTED | {"id": True}],
        [COUNTED | {"prompt_token_count": 0}],
        [COUNTED | {"prompt_token_count": 8185}],
        [COUNTED | {"prompt_token_count": "57"}],
        [COUNTED | {"prompt_token_count": 57.0}],
        [COUNTED | {"token_ids": []}],
        [delta("abc")],
        [{"type": "error", "id": None, "error": "invalid_request"}],
        [{"type": "error", "id": 1, "error": "engine_fault"}],
        [{"type": "error", "id": 1, "error": ["rejected_input"]}],
        [{"type": "error", "id": 2, "error": "rejected_input"}],
        [{"type": "error", "id": 1, "error": "rejected_input", "message": "x"}],
        [b"\n"],
        [b"[]\n"],
        [b'{"type":"count","id":1,"prompt_token_count":57,"id":1}\n'],
        [b" " * 1_048_576 + b"\n"],
    ],
)
def test_records_that_are_no_count(records: list[object]) -> None:
    """The client believes none of them, and nothing after them."""
    client, requests = scripted(*records, COUNTED)
    with pytest.raises(WorkerFaultError):
        client.count(HELLO, 8)
    assert_disabled(client, requests)


@pytest.mark.parametrize(
    "records",
    [
        [delta("", 1), COMPLETION],
        [delta(None), COMPLETION],
        [delta("x", 2), COMPLETION],
        [delta("x") | {"channel": "content"}, COMPLETION],
        [delta("x" * 16_385), COMPLETION],
        [*[delta("x" * 16_384)] * 256, delta("x"), COMPLETION],
        [delta("x"), COMPLETION | {"id": 2}],
        [delta("x"), COMPLETION | {"finish": "maybe"}],
        [delta("x"), COMPLETION | {"output_token_count": 0}],
        [delta("x"), COMPLETION | {"output_token_count": 9}],
        [delta("x"), COMPLETION | {"output_token_count": True}],
        [COMPLETION | {"finish": "length", "output_token_count": 0}],
        [COMPLETION | {"cached_token_count": 57}],
        [COMPLETION | {"cached_token_count": -1}],
        [COMPLETION | {"prompt_token_count": 8185}],
        [COMPLETION | {"text": ""}],
        [COUNTED],
    ],
)
def test_records_that_are_no_answer(records: list[object]) -> None:
    """Deltas of the wrong request, too long or too many, and counts that cannot be, disable the client."""
    client, requests = scripted(*records)
    with pytest.raises(WorkerFaultError, match="no answer"):
        client.complete(HELLO, 8, 60)
    assert_disabled(client, requests)


def test_reset_knows_no_errors() -> None:
    """A worker that cannot even reset is of no use."""
    client, requests = scripted({"type": "error", "id": 1, "error": "rejected_input"})
    with pytest.raises(WorkerFaultError):
        client.reset()
    assert_disabled(client, requests)


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": "other"},
        {"protocol": "bonsai-swift-worker-v2"},
        {"type": "delta"},
        {"context": "8192"},
        {"starts_inside_think": 1},
        {"max_frame_bytes": 2048},
        {"max_delta_bytes": 16385},
        {"extra": 1},
    ],
)
def test_no_ready_record_of_this_protocol(change: dict[str, Any]) -> None:
    """Another protocol, other fields or other bounds are no worker to talk to."""
    requests = io.BytesIO()
    with pytest.raises(WorkerFaultError) as caught:
        SwiftClient.connect(io.BytesIO(lines(READY | change)), requests, EXPECTED)
    assert not isinstance(caught.value, WorkerMismatchError)
    short = {name: value for name, value in READY.items() if name != "identity"}
    with pytest.raises(WorkerFaultError):
        SwiftClient.connect(io.BytesIO(lines(short)), requests, EXPECTED)
    assert requests.getvalue() == b""


@pytest.mark.parametrize(
    "change",
    [
        {"model_sha256": "0" * 64},
        {"identity": f"{'0' * 64}:qwen35:canon-2/16"},
        {"vocabulary_size": 248_319},
        {"context": 4096},
        {"sampling": READY["sampling"] | {"seed": 2}},
        {"sampling": READY["sampling"] | {"mode": "reference"}},
        {"sampling": {}},
    ],
)
def test_another_worker_than_expected(change: dict[str, Any]) -> None:
    """Model, vocabulary, context and seed must be the ones that the caller knows from elsewhere."""
    with pytest.raises(WorkerMismatchError):
        SwiftClient.connect(io.BytesIO(lines(READY | change)), io.BytesIO(), EXPECTED)


def test_what_is_not_sent() -> None:
    """Requests that are wrong on this side send nothing and take no id; the client goes on."""
    client, requests = scripted(COUNTED)
    wrong: list[tuple[list[Message], int, int]] = [
        ([], 8, 60),
        ([Message("user", "\ud800")], 8, 60),
        (HELLO, 0, 60),
        (HELLO, 8, 0),
        (HELLO, 8, 601),
    ]
    for messages, max_tokens, seconds in wrong:
        with pytest.raises(InvalidInputError):
            client.complete(messages, max_tokens, seconds)
    with pytest.raises(OversizedFrameError):
        client.count([Message("user", "x" * 1_048_576)], 8)
    assert requests.getvalue() == b""
    assert client.count(HELLO, 8) == 57
    assert json.loads(requests.getvalue())["id"] == 1


def test_a_consumer_that_gives_up() -> None:
    """The exchange is unfinished, so the client is of no more use; the streams go back to the caller."""
    client, requests = scripted(delta("x"), COMPLETION)

    def give_up(_text: str) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        client.complete(HELLO, 8, 60, give_up)
    assert_disabled(client, requests)
    assert client.into_parts()[1] is requests


def test_streams_that_fail() -> None:
    """A closed stream, for writing or for reading, is a worker that is gone."""
    client, requests = scripted(COUNTED)
    requests.close()
    with pytest.raises(WorkerFaultError, match="cannot be sent"):
        client.count(HELLO, 8)
    client, _ = scripted(COUNTED)
    client.into_parts()[0].close()
    with pytest.raises(WorkerFaultError, match="given up"):
        client.count(HELLO, 8)


def test_an_expectation_must_be_whole() -> None:
    """A hash in upper case could never be equal."""
    with pytest.raises(InvalidInputError, match="64 lower-case hex digits"):
        ExpectedSwiftWorker(SHA256.upper(), 248_320, 8192, 1)
