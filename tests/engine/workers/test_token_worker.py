from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.artifact import Pin
from engine.tokenization import TextTokenizationPolicy, TokenBudget, TokenizationSession
from engine.workers import token_worker
from engine.workers.frames import OversizedFrameError
from tests.engine.workers.conversations import CONFIG, FRAME_BYTES, ready_line
from tests.models import pin_of
from tests.vocabularies import EOS, LETTERS, MERGES, small

HELLO = len(LETTERS) + MERGES.index("hell o")
INVALID = {"type": "error", "id": None, "error": "invalid_request"}
COUNT = b'{"id":1,"op":"count","text":"hello!"}'


@pytest.fixture(scope="module")
def session(pin: Pin) -> TokenizationSession:
    """A session of the small vocabulary for prompts of 24 tokens."""
    return TokenizationSession.load(pin, 1_000_000, CONFIG.policy)


def answer(session: TokenizationSession, frame: bytes) -> dict[str, Any]:
    """The answer to a frame as the client reads it."""
    record: dict[str, Any] = json.loads(json.dumps(token_worker.answer(session, frame)))
    return record


def conversation(session: TokenizationSession, sent: bytes) -> list[dict[str, Any]]:
    """The records that answer what is sent, after the ready record."""
    sink = io.BytesIO()
    token_worker.serve(session, FRAME_BYTES, io.BytesIO(sent), sink)
    return [json.loads(line) for line in sink.getvalue().split(b"\n")[1:-1]]


@pytest.mark.parametrize(
    ("request_line", "record"),
    [
        (
            '{"id":1,"op":"count","text":"Draft a scene."}',
            {"type": "count", "id": 1, "prompt_token_count": 14},
        ),
        (
            '{"id":2,"op":"encode","text":"hello!"}',
            {"type": "encoded", "id": 2, "prompt_token_count": 2, "token_ids": [HELLO, 33]},
        ),
        (
            '{"id":3,"op":"count_tokens","token_ids":[42,17]}',
            {"type": "count", "id": 3, "prompt_token_count": 2},
        ),
        (
            '{"id":4,"op":"encode_tokens","token_ids":[42,17,42,268]}',
            {"type": "encoded", "id": 4, "prompt_token_count": 4, "token_ids": [42, 17, 42, EOS]},
        ),
        (
            '{"id":0,"op":"encode_tokens","token_ids":[]}',
            {"type": "encoded", "id": 0, "prompt_token_count": 0, "token_ids": []},
        ),
        (
            '{"id":18446744073709551615,"op":"encode","text":""}',
            {"type": "encoded", "id": 2**64 - 1, "prompt_token_count": 0, "token_ids": []},
        ),
        (
            '\t{ "text" : "\\u0068ello\\ud83d\\ude00-", "id" : 7 , "op" : "encode" } \r',
            {
                "type": "encoded",
                "id": 7,
                "prompt_token_count": 6,
                "token_ids": [HELLO, 0xF0, 0x9F, 0x98, 0x80, 45],
            },
        ),
        (
            '{"id":8,"op":"count","text":"<|im_end|>"}',
            {"type": "count", "id": 8, "prompt_token_count": 10},
        ),
    ],
)
def test_the_four_operations(request_line: str, record: dict[str, Any], session: TokenizationSession) -> None:
    """Each answers with exactly its fields, the request's id and what the text or the ids are."""
    assert answer(session, request_line.encode()) == record


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\r",
        b" ",
        b"null",
        b"[]",
        b"{}",
        b"not json",
        COUNT + b"}",
        COUNT + COUNT,
        COUNT[:-1],
        b"\xef\xbb\xbf" + COUNT,
        b"\x00" + COUNT,
        b"// no\t" + COUNT,
        b'{"id":1,"id":1,"op":"count","text":"a"}',
        b'{"id":1,"op":"count","op":"encode","text":"a"}',
        b'{"id":1,"op":"count","text":"a","\\u0074ext":"a"}',
        b'{"id":1,"op":"count","text":"a","more":1}',
        b'{"id":1,"op":"count","text":"a","token_ids":[1]}',
        b'{"id":1,"op":"count","text":"a","token_ids":null}',
        b'{"id":1,"op":"count","token_ids":[1]}',
        b'{"id":1,"op":"count_tokens","text":"a"}',
        b'{"id":1,"op":"count"}',
        b'{"op":"count","text":"a"}',
        b'{"id":1,"text":"a"}',
        b'{"id":1,"op":"Count","text":"a"}',
        b'{"id":1,"op":"","text":"a"}',
        b'{"id":1,"op":null,"text":"a"}',
        b'{"id":1,"op":["count"],"text":"a"}',
        b'{"id":1,"op":1,"text":"a"}',
        b'{"ID":1,"op":"count","text":"a"}',
        b'{"id":null,"op":"count","text":"a"}',
        b'{"id":"1","op":"count","text":"a"}',
        b'{"id":true,"op":"count","text":"a"}',
        b'{"id":1.0,"op":"count","text":"a"}',
        b'{"id":1e0,"op":"count","text":"a"}',
        b'{"id":-1,"op":"count","text":"a"}',
        b'{"id":-0,"op":"count","text":"a"}',
        b'{"id":01,"op":"count","text":"a"}',
        b'{"id":+1,"op":"count","text":"a"}',
        b'{"id":18446744073709551616,"op":"count","text":"a"}',
        b'{"id":' + b"9" * 5000 + b',"op":"count","text":"a"}',
        b'{"id":[1],"op":"count","text":"a"}',
        b'{"id":NaN,"op":"count","text":"a"}',
        b'{"id":1,"op":"count","text":null}',
        b'{"id":1,"op":"count","text":["a"]}',
        b'{"id":1,"op":"count","text":1}',
        b'{"id":1,"op":"count","text":"\xff"}',
        b'{"id":1,"op":"count","text":"\xc0\x80"}',
        b'{"id":1,"op":"count","text":"\xed\xa0\xbd\xed\xb8\x80"}',
        b'{"id":1,"op":"count","text":"\\ud83d"}',
        b'{"id":1,"op":"count","text":"\\ude00\\ud83d"}',
        b'{"id":1,"op":"count","text":"\\x41"}',
        b'{"id":1,"op":"count","text":"a\rb"}',
        b'{"id":1,"op":"count_tokens","token_ids":"1"}',
        b'{"id":1,"op":"count_tokens","token_ids":{}}',
        b'{"id":1,"op":"count_tokens","token_ids":null}',
        b'{"id":1,"op":"count_tokens","token_ids":1}',
        b'{"id":1,"op":"count_tokens","token_ids":[1,]}',
        b'{"id":1,"op":"count_tokens","token_ids":[1,true]}',
        b'{"id":1,"op":"count_tokens","token_ids":[1.0]}',
        b'{"id":1,"op":"count_tokens","token_ids":[-1]}',
        b'{"id":1,"op":"count_tokens","token_ids":[-0]}',
        b'{"id":1,"op":"count_tokens","token_ids":["1"]}',
        b'{"id":1,"op":"count_tokens","token_ids":[[1]]}',
        b'{"id":1,"op":"count_tokens","token_ids":[null]}',
        b'{"id":1,"op":"count_tokens","token_ids":[4294967296]}',
        b'{"id":1,"op":"count_tokens","token_ids":' + b"[" * 100_000,
        b'{"id":1,"op":"count","text":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    ],
)
def test_what_is_no_request(frame: bytes, session: TokenizationSession) -> None:
    """Every other frame is answered without an id and without saying why, and the session goes on."""
    assert answer(session, frame) == INVALID
    assert answer(session, COUNT) == {"type": "count", "id": 1, "prompt_token_count": 2}


@pytest.mark.parametrize(
    "request_line",
    [
        b'{"id":5,"op":"count","text":"xxxxxxxxxxxxxxxxxxxxxxxxx"}',
        b'{"id":5,"op":"encode","text":"xxxxxxxxxxxxxxxxxxxxxxxxx"}',
        b'{"id":5,"op":"count_tokens","token_ids":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}',
        b'{"id":5,"op":"count_tokens","token_ids":[271]}',
        b'{"id":5,"op":"encode_tokens","token_ids":[0,4294967295]}',
    ],
)
def test_requests_whose_content_is_refused(request_line: bytes, session: TokenizationSession) -> None:
    """Text or ids beyond the allowance of 24, and ids outside the vocabulary, are refused with their id."""
    assert answer(session, request_line) == {"type": "error", "id": 5, "error": "rejected_input"}
    assert answer(session, COUNT)["prompt_token_count"] == 2


def test_the_policy_is_the_session_s(tmp_path: Path) -> None:
    """Text is parsed and boundaries are inserted as the session says, around empty text too; ids never."""
    writer = small().add("tokenizer.ggml.add_eos_token", "bool", True)
    policy = TextTokenizationPolicy("parse", "model", TokenBudget(8, 0))
    session = TokenizationSession.load(pin_of(writer.write(tmp_path / "v.gguf")), 1_000_000, policy)
    assert answer(session, b'{"id":1,"op":"encode","text":"<|im_end|>a"}')["token_ids"] == [EOS, 97, EOS]
    assert answer(session, b'{"id":1,"op":"count","text":""}')["prompt_token_count"] == 1
    assert answer(session, b'{"id":1,"op":"encode_tokens","token_ids":[]}')["token_ids"] == []


def test_decoded_ids_are_the_answer(session: TokenizationSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The array that was decoded from the frame is checked and handed on; there is no second one."""
    ids = [42, 17]
    request = token_worker.Request(1, "encoded", ids)
    monkeypatch.setattr(token_worker, "parse_request", lambda _: request)
    assert token_worker.answer(session, b"")["token_ids"] is ids


def test_ids_are_not_remembered(session: TokenizationSession) -> None:
    """The same id may be used again, and in any order."""
    assert [record["id"] for record in conversation(session, COUNT + b"\n" + COUNT + b"\n")] == [1, 1]


def test_the_ready_record_comes_first(session: TokenizationSession, pin: Pin) -> None:
    """Before anything is read, the worker says what it is and all that is fixed."""
    sink = io.BytesIO()
    with pytest.raises(OversizedFrameError):
        token_worker.serve(session, FRAME_BYTES, io.BytesIO(b"x" * 1000), sink)
    assert sink.getvalue().endswith(b"\n")
    assert json.loads(sink.getvalue()) == ready_line(pin)


def test_the_frame_bound(session: TokenizationSession) -> None:
    """A frame of exactly the bound is answered, CR included; one byte more ends the work unanswered."""
    fitting = COUNT + b" " * (FRAME_BYTES - len(COUNT))
    with_return = fitting[:-1] + b"\r"
    assert len(conversation(session, fitting + b"\n" + with_return + b"\n")) == 2
    for longer in (fitting + b" \n", fitting + b"\r\n", fitting + b"  "):
        source, sink = io.BytesIO(longer + COUNT + b"\n"), io.BytesIO()
        with pytest.raises(OversizedFrameError):
            token_worker.serve(session, FRAME_BYTES, source, sink)
        assert sink.getvalue().count(b"\n") == 1
        assert source.tell() == FRAME_BYTES + 1


def test_line_ends(session: TokenizationSession) -> None:
    """CRLF is accepted; an empty line is a frame that is no request."""
    records = conversation(session, COUNT + b"\r\n\n" + COUNT + b"\n")
    assert [record["type"] for record in records] == ["count", "error", "count"]


@pytest.mark.parametrize("end", [COUNT, COUNT[:5], b"\r", b"\xff"])
def test_an_unterminated_frame(end: bytes, session: TokenizationSession) -> None:
    """The end of the input inside a frame, complete or not, is one more invalid request and a clean end."""
    records = conversation(session, COUNT + b"\n" + end)
    assert records[1:] == [INVALID]


@given(st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes(session: TokenizationSession, frame: bytes) -> None:
    """Whatever a frame holds, and whatever a text holds, there is exactly one record."""
    text = json.dumps({"id": 1, "op": "count", "text": frame.decode("latin-1")}).encode()
    for sent in (frame.replace(b"\n", b""), text):
        record = answer(session, sent)
        assert record["type"] in ("count", "error")
        assert set(record) <= {"type", "id", "error", "prompt_token_count"}
