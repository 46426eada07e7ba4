"""Conversations with the token worker: any frames, good and bad, each answered as if it were alone.

The vocabulary has one token a byte and no merges, so that a text's ids are its bytes. Requests are read here
by the standard library's parser, with hooks for what the protocol refuses beyond it.
"""

from __future__ import annotations

import io
import json
import re
from functools import cache
from typing import Any, NoReturn

from hypothesis import strategies as st

from engine.tokenization import TextTokenizationPolicy, TokenBudget, TokenizationSession
from engine.tokenizer import Tokenizer
from engine.workers.token_worker import serve
from tests.fuzz.target import Target
from tests.vocabularies import metadata_of, small

FRAME_BYTES = 1 << 16
PROMPT_TOKENS = 24
VOCABULARY = 261
INVALID = {"type": "error", "id": None, "error": "invalid_request"}
GOOD = b'{"id":7,"op":"encode","text":"<|im_end|>"}'

NUMBERS = st.integers(0, 300) | st.sampled_from(
    [-1, 260, 261, 2**32 - 1, 2**32, 2**64 - 1, 2**64, 0.0, 1.5, True]
)
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["a" * 24, "a" * 25, "é" * 12, "é" * 13, "<think>", "\ud83d", "-"]
)
JSON = st.one_of(NUMBERS, TEXTS, st.none(), st.lists(NUMBERS, max_size=4), st.just({}), st.just([[]]))
FIELDS = {"count": "text", "encode": "text", "count_tokens": "token_ids", "encode_tokens": "token_ids"}
FRAGMENTS = [
    '{"id":1,',
    '"id":1',
    '"op":"count"',
    '"text":"x"',
    ",",
    "}",
    "{",
    "[",
    "]",
    "-",
    "1e2",
    "NaN",
    '"',
    "\\",
]
FRAGMENTS += [
    ' "token_ids":[1,2]',
    "null",
    "\t",
    "\r",
    "\x00",
    "\ufeff",
    "\u2028",
    "é",
    '\\ud83d"',
    '"\\u0069d":2',
]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request with the right fields and mostly right values, in any order, spaced and escaped anyhow."""
    operation, field = draw(st.sampled_from(sorted(FIELDS.items())))
    value = st.lists(NUMBERS, max_size=26) if field == "token_ids" else TEXTS
    request: dict[str, Any] = {"id": draw(st.integers(0, 99) | NUMBERS), "op": operation, field: draw(value)}
    if draw(st.integers(0, 5)) == 0:
        request[draw(st.sampled_from(["id", "op", "text", "token_ids", "more"]))] = draw(JSON)
    items = draw(st.permutations(list(request.items())))
    space = draw(st.sampled_from(["", " ", "\t"]))
    ascii_only = draw(st.booleans())
    return json.dumps(dict(items), ensure_ascii=ascii_only, separators=(space + ",", ":" + space)).encode(
        "utf-8", "surrogatepass"
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A request with a signed zero, a field twice, or some bytes replaced, taken out or put in."""
    frame = draw(requests())
    damage = draw(st.sampled_from(["sign", "twice", "bytes", "bytes"]))
    if damage == "sign":
        return re.sub(rb"\b[0-9]+(?=[,}\]])", b"-0", frame, count=draw(st.integers(1, 2)))
    if damage == "twice":
        return frame.replace(b"{", b"{" + frame.strip(b"{}").split(b",")[0] + b",", 1)
    place = draw(st.integers(0, len(frame)))
    frame = frame[:place] + draw(st.binary(max_size=2)) + frame[place + draw(st.integers(0, 3)) :]
    return frame.replace(b"\n", b"")


PIECES = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map("".join).map(str.encode)
LONG = st.tuples(PIECES, st.sampled_from(FRAGMENTS), st.integers(100, 4000)).map(
    lambda parts: (parts[0] + parts[1].encode() * parts[2])[:FRAME_BYTES]
)
BYTES = st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b""))
CASES = st.lists(requests() | requests() | damaged() | PIECES | BYTES | LONG, max_size=6)


@cache
def session() -> TokenizationSession:
    """A session whose ids are bytes."""
    tokenizer = Tokenizer.from_metadata(metadata_of(small((), eos=258)))
    policy = TextTokenizationPolicy("literal", "none", TokenBudget(PROMPT_TOKENS + 8, 8))
    return TokenizationSession(tokenizer, "0" * 64, policy)


def check(frames: list[bytes]) -> None:
    """One line answers each frame, as the model does; a good request at the end is answered as ever."""
    sink = io.BytesIO()
    serve(session(), FRAME_BYTES, io.BytesIO(b"".join(frame + b"\n" for frame in [*frames, GOOD])), sink)
    ready, *answers, end = sink.getvalue().split(b"\n")
    assert json.loads(ready)["vocabulary_size"] == VOCABULARY
    assert end == b""
    assert [json.loads(answer) for answer in answers] == [model(frame) for frame in [*frames, GOOD]]


def model(frame: bytes) -> dict[str, Any]:
    """The answer to a frame."""
    request = request_of(frame)
    if request is None:
        return INVALID
    ids = request["token_ids"] if "token_ids" in request else list(request["text"].encode())
    if len(ids) > PROMPT_TOKENS or max(ids, default=0) >= VOCABULARY:
        return {"type": "error", "id": request["id"], "error": "rejected_input"}
    kind = "count" if request["op"].startswith("count") else "encoded"
    answer = {"type": kind, "id": request["id"], "prompt_token_count": len(ids)}
    return answer | {"token_ids": ids} if kind == "encoded" else answer


def request_of(frame: bytes) -> dict[str, Any] | None:
    """The fields of a valid request."""
    hooks: Any = {"parse_int": _plain, "parse_float": _refuse, "parse_constant": _refuse}
    try:
        fields = json.loads(frame.decode("utf-8"), object_pairs_hook=_unique, **hooks)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and is_request(fields) else None


def is_request(fields: dict[str, Any]) -> bool:
    """Whether these are the fields of an operation, with values of the right kinds."""
    operation = fields.get("op")
    field = FIELDS.get(operation, "") if isinstance(operation, str) else ""
    if not field or fields.keys() != {"id", "op", field}:
        return False
    value = fields[field]
    if type(fields["id"]) is not int or fields["id"] >= 2**64:
        return False
    if field == "text":
        return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
    return isinstance(value, list) and all(type(token) is int and token < 2**32 for token in value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _plain(digits: str) -> int:
    return _refuse(digits) if digits.startswith("-") else int(digits)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


TARGET = Target("token-worker", CASES, check)
