from __future__ import annotations

import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.errors import (
    BudgetError,
    EngineError,
    MalformedGgufError,
    NotGgufError,
    TruncatedError,
)
from engine.gguf import Header, parse_header
from engine.layout import prove_layout, refuse_unknown_contracts
from tests.gguf_writer import F32, PQ2_0, Q2_0, GgufWriter

MODELS = Path(__file__).parent.parent / "data" / "models"


def parse(data: bytes) -> Header:
    """The header of a whole file."""
    return parse_header(data, len(data))


def sample() -> GgufWriter:
    """A true file with every value type and two tensors."""
    return (
        GgufWriter()
        .add("general.architecture", "string", "qwen3")
        .add("a.u8", "u8", 255)
        .add("a.i8", "i8", -128)
        .add("a.u16", "u16", 65535)
        .add("a.i16", "i16", -32768)
        .add("a.u32", "u32", 2**32 - 1)
        .add("a.i32", "i32", -(2**31))
        .add("a.u64", "u64", 2**64 - 1)
        .add("a.i64", "i64", -(2**63))
        .add("a.f32", "f32", 0.5)
        .add("a.f64", "f64", 1e300)
        .add("a.bool", "bool", True)
        .add("a.strings", "[string]", ["", "zwölf", "\U0001f600"])
        .add("a.bytes", "[u8]", [1, 2, 3])
        .add("a.ints", "[i64]", [-(2**63), 2**63 - 1])
        .add("a.flags", "[bool]", [True, False])
        .add("a.empty", "[string]", [])
        .tensor("token_embd.weight", (64, 3), F32)
        .tensor("blk.0.attn_q.weight", (128, 2), PQ2_0)
    )


@pytest.mark.parametrize("version", [2, 3])
def test_true_file(version: int) -> None:
    """Every value, shape and offset of a true file comes out as it was written, in both versions."""
    writer = sample()
    writer.version = version
    header = parse(writer.build())
    metadata = header.metadata
    assert header.version == version
    assert header.alignment == 32
    assert header.data_start == (len(writer.header()) + 31) // 32 * 32
    assert list(metadata.keys())[:3] == ["general.architecture", "a.u8", "a.i8"]
    assert metadata.string("general.architecture") == "qwen3"
    assert [metadata.uint(f"a.u{bits}") for bits in (8, 16, 32, 64)] == [
        2**8 - 1,
        2**16 - 1,
        2**32 - 1,
        2**64 - 1,
    ]
    assert metadata.number("a.i64") == -(2.0**63)
    assert metadata.number("a.f32") == 0.5
    assert metadata.number("a.f64") == 1e300
    assert metadata.boolean("a.bool") is True
    assert metadata.strings("a.strings") == ["", "zwölf", "\U0001f600"]
    assert metadata.strings("a.empty") == []
    assert metadata.integers("a.bytes").tolist() == [1, 2, 3]
    assert metadata.integers("a.ints").tolist() == [-(2**63), 2**63 - 1]
    assert metadata.integers("a.flags").tolist() == [1, 0]
    assert [(t.name, t.shape, t.type_id, t.offset) for t in header.tensors] == [
        ("token_embd.weight", (64, 3), F32, 0),
        ("blk.0.attn_q.weight", (128, 2), PQ2_0, 768),
    ]


@pytest.mark.parametrize("path", sorted(MODELS.glob("*q8_0.gguf")), ids=lambda path: path.stem)
def test_equals_the_gguf_package(path: Path) -> None:
    """Keys, values, shapes, types and places of a real file equal what the `gguf` package reads."""
    data = path.read_bytes()
    header = parse(data)
    tensors = prove_layout(header, len(data), memoryview(data))
    oracle = gguf.GGUFReader(path)
    known = {key: field for key, field in oracle.fields.items() if not key.startswith("GGUF.")}
    assert set(header.metadata) == set(known)
    for key, field in known.items():
        expected = field.contents()
        if isinstance(expected, str):
            assert header.metadata.string(key) == expected
        elif isinstance(expected, list) and expected and isinstance(expected[0], str):
            assert header.metadata.strings(key) == expected
        elif isinstance(expected, bool):
            assert header.metadata.boolean(key) == expected
        elif not isinstance(expected, list):
            assert header.metadata.number(key) == expected
    assert [(t.name, list(t.shape), t.type.id, t.start, t.nbytes) for t in tensors.values()] == [
        (t.name, t.shape.tolist(), t.tensor_type.value, t.data_offset, t.n_bytes) for t in oracle.tensors
    ]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"", "empty"),
        (b"GG", "magic"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"\n  <html lang=en>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "LFS"),
        (b"FUGG" + bytes(60), "big-endian"),
        (b"tjgg" + bytes(60), "older than GGUF"),
        (b"PK\x03\x04" + bytes(60), "50 4b 03 04"),
    ],
)
def test_other_files_are_named(start: bytes, words: str) -> None:
    """What is no GGUF is called by what it is."""
    with pytest.raises(NotGgufError, match=words):
        parse(start)


@pytest.mark.parametrize("version", [0, 1, 4, 2**32 - 1])
def test_versions_refused(version: int) -> None:
    """Only versions 2 and 3 are read, and the message says which it was."""
    with pytest.raises(NotGgufError, match=f"version {version}; versions 2 and 3"):
        parse(GgufWriter(version).build())


@pytest.mark.parametrize("version", [2, 3])
def test_big_endian_is_named(version: int) -> None:
    """A file of the other byte order is called big-endian, not corrupt."""
    with pytest.raises(NotGgufError, match="big-endian"):
        parse(GgufWriter(version, big_endian=True).add("a", "u32", 1).build())


MALFORMED = {
    "tensor count negative": sample().build(n_tensors=-1),
    "tensor count huge": sample().build(n_tensors=2**62),
    "key count negative": sample().build(n_kv=-(2**63)),
    "key count huge": sample().build(n_kv=2**63 - 1),
    "empty key": GgufWriter().add("", "u8", 1).build(),
    "duplicate key": GgufWriter().add("a", "u8", 1).add("b", "u8", 1).add("a", "u32", 2).build(),
    "key not UTF-8": GgufWriter().add(b"\xff\xfe", "u8", 1).build(),
    "key too long": GgufWriter().add("k" * 65_536, "u8", 1).build(),
    "key length wraps": GgufWriter().raw_key(struct.pack("<Q", 2**64 - 1) + bytes(64)).build(),
    "value type unknown": GgufWriter().raw("a", 13, bytes(8)).build(),
    "value type huge": GgufWriter().raw("a", 2**32 - 1, bytes(8)).build(),
    "string not UTF-8": GgufWriter().add("a", "string", b"\xc0\x80").build(),
    "string a surrogate": GgufWriter().add("a", "string", "\ud800").build(),
    "string too long": GgufWriter().add("a", "string", "x" * (2**20 + 1)).build(),
    "string length wraps": GgufWriter().raw("a", 8, struct.pack("<Q", 2**64 - 8) + b"abc").build(),
    "boolean 2": GgufWriter().raw("a", 7, b"\x02").build(),
    "boolean array with 2": GgufWriter().raw("a", 9, struct.pack("<IQ", 7, 3) + b"\x00\x01\x02").build(),
    "nested array": GgufWriter().add("a", "[[u8]]", [[1], [2]]).build(),
    "nested array, empty": GgufWriter().raw("a", 9, struct.pack("<IQ", 9, 0)).build(),
    "array element type unknown": GgufWriter().raw("a", 9, struct.pack("<IQ", 99, 1) + bytes(9)).build(),
    "array string not UTF-8": GgufWriter().add("a", "[string]", ["x", b"\xff", "y"]).build(),
    "array string too long": GgufWriter().add("a", "[string]", ["x", "y" * (2**20 + 1)]).build(),
    "array string length wraps": GgufWriter()
    .raw("a", 9, struct.pack("<IQQ", 8, 1, 2**64 - 1) + bytes(64))
    .build(),
    "array of too many strings": GgufWriter().add("a", "[string]", [""] * 1_000_001).build(),
    "alignment 0": GgufWriter().add("general.alignment", "u32", 0).build(),
    "alignment 3": GgufWriter().add("general.alignment", "u32", 3).build(),
    "alignment 2^31": GgufWriter().add("general.alignment", "u32", 2**31).build(),
    "alignment u64": GgufWriter().add("general.alignment", "u64", 32).build(),
    "alignment 2^40": GgufWriter().add("general.alignment", "u64", 2**40).build(),
    "alignment string": GgufWriter().add("general.alignment", "string", "32").build(),
    "alignment array": GgufWriter().add("general.alignment", "[u32]", [32]).build(),
    "tensor name empty": GgufWriter().tensor("", (4,), F32).build(),
    "tensor name of 64 bytes": GgufWriter().tensor("x" * 64, (4,), F32).build(),
    "tensor name not UTF-8": GgufWriter().tensor(b"\x80", (4,), F32).build(),
    "tensor name twice": GgufWriter().tensor("a", (4,), F32).tensor("a", (4,), F32).build(),
    "no dimensions": GgufWriter().tensor("a", (), F32, b"").build(),
    "5 dimensions": GgufWriter().tensor("a", (1, 1, 1, 1, 1), F32).build(),
    "9 dimensions": GgufWriter().tensor("a", (4,), F32, n_dims=9).build(),
    "2^32 - 1 dimensions": GgufWriter().tensor("a", (4,), F32, n_dims=2**32 - 1).build(),
    "dimension 0": GgufWriter().tensor("a", (32, 0), F32, b"").build(),
    "dimension -1": GgufWriter().tensor("a", (32, -1), F32, b"").build(),
    "dimensions overflow": GgufWriter().tensor("a", (2**32, 2**31), F32, b"").build(),
    "dimensions wrap to 0": GgufWriter().tensor("a", (2**33, 2**31), F32, b"").build(),
    "dimensions wrap to 32": GgufWriter().tensor("a", (2**32 + 1, 2**32 + 32), F32, b"").build(),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed(data: bytes) -> None:
    """A header that breaks a rule of the format is malformed: not truncated, not another error."""
    with pytest.raises(MalformedGgufError):
        parse(data)


TRUNCATED = {
    "magic alone": b"GGUF",
    "half a version": b"GGUF\x03\x00",
    "no key count": GgufWriter().build()[:20],
    "more keys than bytes": sample().build(n_kv=1000),
    "more tensors than bytes": sample().build(n_tensors=1000),
    "string past the end": GgufWriter().raw("a", 8, struct.pack("<Q", 1000) + b"abc").build(),
    "array past the end": GgufWriter().raw("a", 9, struct.pack("<IQ", 4, 1000) + bytes(8)).build(),
    "array count wraps in bytes": GgufWriter().raw("a", 9, struct.pack("<IQ", 10, 2**61) + bytes(64)).build(),
    "array count 2^64 - 1": GgufWriter().raw("a", 9, struct.pack("<IQ", 0, 2**64 - 1) + bytes(64)).build(),
    "string array count": GgufWriter().raw("a", 9, struct.pack("<IQ", 8, 2**60) + bytes(64)).build(),
    "string array ends early": GgufWriter().raw("a", 9, struct.pack("<IQQ", 8, 2, 5) + b"12345678").build(),
}


@pytest.mark.parametrize("data", TRUNCATED.values(), ids=TRUNCATED.keys())
def test_truncated(data: bytes) -> None:
    """A header whose counts and lengths go past the file's end is truncated, and nothing is allocated."""
    with pytest.raises(TruncatedError):
        parse(data)


def test_every_cut_is_truncated() -> None:
    """A file cut at any byte of its header is truncated (or, in the magic, no GGUF)."""
    writer = sample()
    header = writer.header()
    for length in range(len(header)):
        with pytest.raises(TruncatedError if length >= 4 else NotGgufError):
            parse(header[:length])


def test_prefix_of_the_file() -> None:
    """A prefix that holds the header is enough; one that does not is over its limit, not truncated."""
    writer = sample()
    whole, header_bytes = writer.build(), len(writer.header())
    assert parse_header(whole[:header_bytes], len(whole)).tensors == parse(whole).tensors
    for length in (8, 100, header_bytes - 1):
        with pytest.raises(BudgetError, match=f"larger than the {length} bytes"):
            parse_header(whole[:length], len(whole))
    with pytest.raises(TruncatedError):
        parse_header(whole[: header_bytes - 1], header_bytes - 1)


def test_alignment_is_used() -> None:
    """The data section starts at a multiple of the file's own alignment."""
    header = parse(GgufWriter(alignment=4096).tensor("a", (4,), F32).tensor("b", (4,), F32).build())
    assert (header.alignment, header.data_start) == (4096, 4096)
    assert header.tensors[1].offset == 4096


def test_big_vocabulary_is_fast() -> None:
    """250,000 tokens and as many merges parse in well under two seconds."""
    data = (
        GgufWriter()
        .add("tokenizer.ggml.tokens", "[string]", [f"token{i}" for i in range(250_000)])
        .add("tokenizer.ggml.merges", "[string]", [f"left{i} right{i}" for i in range(250_000)])
        .add("tokenizer.ggml.token_type", "[i32]", [1] * 250_000)
        .build()
    )
    started = time.perf_counter()
    metadata = parse(data).metadata
    assert time.perf_counter() - started < 1.5
    assert metadata.strings("tokenizer.ggml.tokens")[-1] == "token249999"
    assert metadata.strings("tokenizer.ggml.merges")[0] == "left0 right0"


def test_numbers_are_apart_from_the_file() -> None:
    """Arrays are copies in native byte order, and cannot be written to."""
    buffer = bytearray(GgufWriter().add("a", "[i32]", [7, 8]).build())
    metadata = parse_header(buffer, len(buffer)).metadata
    for index in range(len(buffer)):
        buffer[index] = 0
    array = metadata.integers("a")
    assert array.tolist() == [7, 8]
    assert array.dtype == np.int64


def attempt(data: bytes) -> None:
    """Everything that the container part does with a file; only an `EngineError` may come out."""
    message = ""
    try:
        header = parse_header(data, len(data))
        refuse_unknown_contracts(header.metadata)
        prove_layout(header, len(data), memoryview(data))
    except EngineError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 2000


BASE = sample().tensor("q", (128, 2), Q2_0, group=128).build()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(BASE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
@example([(4, 0)])
def test_fuzz_changed_bytes(changes: list[tuple[int, int]]) -> None:
    """No change of single bytes brings out anything but an `EngineError`."""
    data = bytearray(BASE)
    for place, value in changes:
        data[place] = value
    attempt(bytes(data))


WORDS = st.sampled_from([0, 1, 2, 3, 31, 64, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**63, 2**64 - 1])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(4, len(BASE) - 8), WORDS), min_size=1, max_size=3))
def test_fuzz_changed_words(changes: list[tuple[int, int]]) -> None:
    """No telling integer at any place brings out anything but an `EngineError`."""
    data = bytearray(BASE)
    for place, value in changes:
        struct.pack_into("<Q", data, place, value)
    attempt(bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 40))
def test_fuzz_after_the_counts(body: bytes, count: int) -> None:
    """Arbitrary bytes after a true beginning bring out nothing but an `EngineError`."""
    attempt(b"GGUF" + struct.pack("<IQQ", 3, count % 5, count) + body)
