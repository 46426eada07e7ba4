from __future__ import annotations

import struct
from pathlib import Path

import pytest

from engine.errors import (
    LayoutMismatchError,
    MalformedGgufError,
    TruncatedError,
    UnsupportedContractError,
    UnsupportedTypeError,
)
from engine.gguf import parse_header
from engine.layout import Tensor, prove_layout, refuse_unknown_contracts
from tests.gguf_writer import BLOCKS, F32, PQ2_0, PTQ1_0, Q1_0, Q2_0, Q8_0, GgufWriter, ternary_blocks

MODELS = Path(__file__).parent.parent / "data" / "models"


def prove(data: bytes, *, header_only: bool = False) -> dict[str, Tensor]:
    """The proved tensors of a whole file."""
    return prove_layout(parse_header(data, len(data)), len(data), None if header_only else memoryview(data))


def with_42(group: int, *, scale_first: bool = True, scale: float = 0.5) -> GgufWriter:
    """A matrix of type 42 with real ternary blocks, then a norm whose offset tells the group."""
    blocks = ternary_blocks(256 * 40 // group, group, scale_first=scale_first, scale=scale)
    return GgufWriter().tensor("output.weight", (256, 40), Q2_0, blocks).tensor("norm.weight", (256,), F32)


@pytest.mark.parametrize("type_id", BLOCKS)
def test_every_type_has_its_size(type_id: int) -> None:
    """Offsets and sizes follow the block geometry of each type."""
    data = GgufWriter().tensor("a", (256, 30), type_id).tensor("b", (32,), F32).build()
    tensors = prove(data)
    weights, nbytes = BLOCKS[type_id]
    assert tensors["a"].type.id == type_id
    assert tensors["a"].nbytes == 256 * 30 // weights * nbytes
    assert tensors["b"].start + 128 == len(data)
    assert list(tensors) == ["a", "b"]


def test_two_and_four_dimensions() -> None:
    """All dimensions after the first count rows."""
    data = GgufWriter().tensor("a", (128, 2, 3, 4), PTQ1_0).tensor("b", (4,), F32).build()
    assert prove(data)["a"].nbytes == 24 * 28


@pytest.mark.parametrize("group", [64, 128])
@pytest.mark.parametrize("header_only", [False, True])
def test_id_42_is_told_apart(group: int, header_only: bool) -> None:
    """The offset of the tensor after it says in which groups id 42 is stored."""
    found = prove(with_42(group).build(), header_only=header_only)["output.weight"].type
    assert (found.name, found.id, found.block) == (("Q2_0", 42, 64) if group == 64 else ("PQ2_0", 42, 128))


@pytest.mark.parametrize("group", [64, 128])
@pytest.mark.parametrize("pad_last", [False, True])
def test_id_42_alone_is_told_by_the_length(group: int, pad_last: bool) -> None:
    """If no tensor follows, the length of the file tells the groups, with or without its last padding."""
    blocks = ternary_blocks(256 * 41 // group, group)
    data = GgufWriter().tensor("a", (256, 41), Q2_0, blocks).build(pad_last=pad_last)
    assert prove(data)["a"].type.block == group


def test_inputs_of_64_are_groups_of_64() -> None:
    """Rows that no group of 128 divides leave one reading."""
    data = GgufWriter().tensor("a", (192, 3), Q2_0).build()
    assert prove(data)["a"].type.block == 64


def test_id_42_cut_short_is_truncated() -> None:
    """A file that ends before either reading does is truncated, not ambiguous."""
    data = GgufWriter().tensor("a", (256, 41), Q2_0).build()
    with pytest.raises(TruncatedError):
        prove(data[:-1000])


def test_id_42_ambiguous() -> None:
    """With a length that fits neither end of a lone tensor, or both, nothing tells the groups."""
    data = GgufWriter().tensor("a", (256, 40), Q2_0).build()
    with pytest.raises(LayoutMismatchError, match="groups of 64 or of 128"):
        prove(data + bytes(100))
    with pytest.raises(LayoutMismatchError, match="groups of 64 or of 128"):
        prove(GgufWriter().tensor("a", (128, 1), Q2_0).tensor("b", (4,), F32).build())


def test_id_42_mixed_lie() -> None:
    """Two groupings in one file fit neither reading; the message has the numbers of both."""
    data = (
        GgufWriter()
        .tensor("a", (256, 40), Q2_0, group=64)
        .tensor("b", (256, 40), Q2_0, group=128)
        .tensor("c", (4,), F32)
        .build()
    )
    with pytest.raises(LayoutMismatchError) as caught:
        prove(data)
    assert "'c' is at offset 5600, but its place is 5760" in str(caught.value)
    assert "'b' is at offset 2880, but its place is 2720" in str(caught.value)


def test_real_legacy_case() -> None:
    """The offsets of the published 27B file (5120 x 248320 in groups of 128) are read as groups of 128."""
    shape, legacy, group_64 = (5120, 248_320), 337_715_200, 357_580_800
    for offset, block in ((legacy, 128), (group_64, 64)):
        header = (
            GgufWriter()
            .tensor("output.weight", shape, Q2_0, b"")
            .tensor("output_norm.weight", (5120,), F32, b"", offset=offset)
        )
        data, file_bytes = header.build(), offset + 40_000
        tensors = prove_layout(parse_header(data, file_bytes), file_bytes, None)
        assert tensors["output.weight"].type.block == block
        assert tensors["output.weight"].nbytes == offset


@pytest.mark.parametrize("group", [64, 128])
def test_scale_last_is_refused(group: int) -> None:
    """Blocks that make sense only with the scale after the codes are refused when the data are there."""
    data = with_42(group, scale_first=False).build()
    with pytest.raises(LayoutMismatchError, match="scale after the codes"):
        prove(data)
    assert prove(data, header_only=True)


def test_blocks_that_decide_nothing_are_kept() -> None:
    """Code 3 alone, or all zeros, is no proof of another order."""
    threes = b"".join(struct.pack("<e", 0.5) + b"\xff" * 16 for _ in range(160))
    assert prove(GgufWriter().tensor("a", (256, 40), Q2_0, threes).tensor("b", (4,), F32).build())
    assert prove(with_42(64, scale=0.0).build())
    assert prove(GgufWriter().tensor("a", (256, 40), Q2_0).tensor("b", (4,), F32).build())


def test_quantization_version_as_a_string() -> None:
    """Files whose quantization version is a string come from tools with another block order."""
    writer = with_42(128).add("general.quantization_version", "string", "TQ2_0_G128")
    with pytest.raises(LayoutMismatchError, match="quantization_version"):
        prove(writer.build())
    assert prove(with_42(128).add("general.quantization_version", "u32", 2).build())


@pytest.mark.parametrize(
    ("type_id", "words"),
    [
        (40, "40 \\(NVFP4\\)"),
        (4, "type 4;"),
        (9, "type 9;"),
        (26, "type 26;"),
        (43, "type 43;"),
        (2**31 - 1, "type 2147483647;"),
    ],
)
def test_unsupported_types(type_id: int, words: str) -> None:
    """A type without a decoder is refused with its id, the tensor and what is supported."""
    data = GgufWriter().tensor("blk.0.x", (256,), type_id, bytes(4096)).build()
    with pytest.raises(UnsupportedTypeError, match=words) as caught:
        prove(data)
    assert "'blk.0.x'" in str(caught.value)
    assert "PTQ1_0 (143)" in str(caught.value)


def test_type_minus_one() -> None:
    """A negative type id is an unsupported type."""
    data = GgufWriter().tensor("a", (4,), 2**32 - 1, bytes(16)).build()
    with pytest.raises(UnsupportedTypeError, match="type -1;"):
        prove(data)


@pytest.mark.parametrize(
    ("type_id", "inputs"), [(Q1_0, 64), (PQ2_0, 192), (Q8_0, 33), (Q2_0, 96), (PTQ1_0, 1)]
)
def test_inputs_must_fill_blocks(type_id: int, inputs: int) -> None:
    """A row that does not fill its blocks is malformed."""
    data = GgufWriter().tensor("a", (inputs, 4), type_id, bytes(4096)).build()
    with pytest.raises(MalformedGgufError, match=f"{inputs} inputs"):
        prove(data)


@pytest.mark.parametrize("offset", [0, 32, 96, 127, 2**63, 2**64 - 32])
def test_offsets_are_not_free(offset: int) -> None:
    """A second tensor anywhere but after the first is refused with both numbers."""
    data = GgufWriter().tensor("a", (32,), F32).tensor("b", (32,), F32, offset=offset).build()
    with pytest.raises(LayoutMismatchError, match=f"'b' is at offset {offset}, but its place is 128"):
        prove(data)


def test_first_offset_is_zero() -> None:
    """The first tensor starts at the data section."""
    with pytest.raises(LayoutMismatchError, match="its place is 0"):
        prove(GgufWriter().tensor("a", (32,), F32, offset=32).build())


def test_data_must_fit_the_file() -> None:
    """A tensor that goes past the end of the file is truncated; the last padding may be missing."""
    data = GgufWriter().tensor("a", (256, 3), Q1_0).build(pad_last=False)
    assert prove(data)
    with pytest.raises(TruncatedError, match=f"at byte {len(data)}, but the file has only {len(data) - 1}"):
        prove(data[:-1])
    huge = GgufWriter().tensor("a", (2**31, 2**31), F32, b"").build()
    with pytest.raises(TruncatedError):
        prove(huge)


def test_bytes_after_the_data_are_ignored() -> None:
    """Trailing bytes change nothing, as in llama.cpp."""
    data = GgufWriter().tensor("a", (256, 3), Q1_0).build()
    assert prove(data + b"extra" * 1000) == prove(data)


def test_no_tensors() -> None:
    """A vocabulary file has an empty layout."""
    assert prove(GgufWriter().add("general.architecture", "string", "qwen2").build()) == {}


def test_alignment_pads_offsets() -> None:
    """Offsets are sums of sizes padded to the file's own alignment."""
    data = GgufWriter(alignment=1024).tensor("a", (32,), F32).tensor("b", (32,), F32).build()
    assert prove(data)["b"].start == 2048


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.gguf")), ids=lambda path: path.stem)
def test_real_files(path: Path) -> None:
    """Every small model proves, up to its last byte."""
    data = path.read_bytes()
    tensors = list(prove(data).values())
    assert 0 <= len(data) - (tensors[-1].start + tensors[-1].nbytes) < 32
    refuse_unknown_contracts(parse_header(data, len(data)).metadata)


@pytest.mark.parametrize(
    "key", ["prism.hadamard.tied_output", "prism.rotation.version", "prism.", "prism.hadamard"]
)
def test_unknown_contracts(key: str) -> None:
    """A `prism.*` key that is not one of the ten known ones is refused by name."""
    data = GgufWriter().add("prism.hadamard.version", "u32", 1).add(key, "bool", True).build()
    with pytest.raises(UnsupportedContractError, match=repr(key)):
        refuse_unknown_contracts(parse_header(data, len(data)).metadata)


def test_known_contracts() -> None:
    """The ten keys of the published rotation, and keys that only look alike, are let through."""
    names = "version block_size transform axis sign_mode sign_widths sign_values weight_names"
    writer = GgufWriter().add("prismatic.x", "u8", 1)
    for name in (*names.split(), "inverse_weight_names", "gdn_v_grouped"):
        writer.add(f"prism.hadamard.{name}", "u8", 1)
    data = writer.build()
    refuse_unknown_contracts(parse_header(data, len(data)).metadata)
