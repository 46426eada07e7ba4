from __future__ import annotations

import struct

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine import tensor_types as types
from engine.errors import UnsupportedTypeError
from engine.quantisation import BLOCK_FORMATS, dequantise
from engine.tensor_types import LEGACY_Q2_0, TENSOR_TYPES, TensorType
from tests.scalar_blocks import GEOMETRY, STEP_ZERO, decode_block


def values_of(kind: TensorType, block: bytes) -> list[float]:
    """The weights of one block."""
    return [float(v) for v in dequantise(kind, np.frombuffer(block, np.uint8)[None])[0]]


def random_rows(kind: TensorType, rows: int, blocks: int, seed: int) -> NDArray[np.uint8]:
    """Random raw rows whose scales and minimums are finite."""
    raw = np.random.default_rng(seed).integers(0, 256, (rows, blocks, kind.nbytes), np.uint8)
    offsets = {
        "Q6_K": (208,),
        "TQ1_0": (52,),
        "TQ2_0": (64,),
        "PTQ1_0": (26,),
        "Q4_1": (0, 2),
        "Q5_1": (0, 2),
    }
    for offset in offsets.get(kind.name, (0,)):
        raw[..., offset + 1] &= 0xBF  # clears an exponent bit: neither infinite nor NaN
    return raw.reshape(rows, -1)


def test_worked_example_of_q1_0() -> None:
    """A set bit is +d, a clear one -d, and the lowest bit comes first."""
    block = bytes.fromhex("0038 B105") + bytes(13) + b"\x80"
    signs = "+---++-+" + "+-+-----" + "-" * 111 + "+"
    assert values_of(types.Q1_0, block) == [0.5 if sign == "+" else -0.5 for sign in signs]


def test_worked_example_of_q2_0() -> None:
    """Codes 0, 1, 2, 3 are -d, 0, d, 2d, and the lowest pair comes first."""
    block = bytes.fromhex("003C E406") + b"\x55" * 14
    assert values_of(types.Q2_0, block) == [-1, 0, 1, 2, 1, 0, -1, -1] + [0] * 56


@pytest.mark.parametrize("kind", [types.PQ2_0, LEGACY_Q2_0], ids=["142", "42"])
def test_worked_example_of_pq2_0(kind: TensorType) -> None:
    """The form in groups of 128 is the same under its own id and under the early one."""
    block = bytes.fromhex("002C 9218") + b"\x55" * 29 + b"\xa9"
    expected = [1, -1, 0, 1, -1, 1, 0, -1] + [0] * 116 + [0, 1, 1, 1]
    assert values_of(kind, block) == [0.0625 * value for value in expected]


def test_worked_example_of_ptq1_0() -> None:
    """Bytes BA (trits 2 0 1 1 2), 41 (0 2 0 2 1) and 30 (0 1 2 0) land where the three stages say."""
    block = b"\xba" + b"\x80" * 15 + b"\x41" + b"\x80" * 7 + bytes.fromhex("307F 0034")
    expected = [0.0] * 128
    for positions, value in (((0, 64, 88, 104, 124), 0.25), ((16, 80, 96, 120, 126), -0.25)):
        for position in positions:
            expected[position] = value
    assert values_of(types.PTQ1_0, block) == expected


def test_worked_example_of_tq1_0() -> None:
    """The dense path reads stages of 32, 16 and 4 bytes."""
    block = b"\xba" + b"\x80" * 31 + b"\x41" + b"\x80" * 15 + bytes.fromhex("307F7F7F 0034")
    expected = [0.0] * 256
    for positions, value in (((0, 128, 176, 208, 248), 0.25), ((32, 160, 192, 240, 252), -0.25)):
        for position in positions:
            expected[position] = value
    assert values_of(TENSOR_TYPES[34], block) == expected


def test_worked_example_of_tq2_0() -> None:
    """The four codes of a byte are 32 weights apart."""
    codes = bytearray(b"\x55" * 64)
    codes[0], codes[33] = 0xE4, 0x06
    expected = [0.0] * 256
    for position, value in ((0, -1), (64, 1), (96, 2), (129, 1), (193, -1), (225, -1)):
        expected[position] = value
    assert values_of(TENSOR_TYPES[35], bytes(codes) + b"\x00\x3c") == expected


def test_worked_examples_of_four_and_five_bits() -> None:
    """Low nibbles come before high ones; fifth bits, zero points and minimums are where they belong."""
    nibbles = bytes([0x80, 0xF1]) + bytes([0x88] * 14)
    d, m = struct.pack("<e", 0.5), struct.pack("<e", -3.0)
    middle = [8.0] * 14
    codes = [0.0, 1.0, *middle, 8.0, 15.0, *middle]
    assert values_of(types.Q4_0, d + nibbles) == [0.5 * (code - 8) for code in codes]
    assert values_of(types.Q4_1, d + m + nibbles) == [0.5 * code - 3 for code in codes]
    fifth = struct.pack("<I", 1 << 0 | 1 << 17 | 1 << 31)
    for position in (0, 17, 31):
        codes[position] += 16
    assert values_of(types.Q5_0, d + fifth + nibbles) == [0.5 * (code - 16) for code in codes]
    assert values_of(types.Q5_1, d + m + fifth + nibbles) == [0.5 * code - 3 for code in codes]


def test_worked_example_of_q8_0() -> None:
    """Weights are signed bytes times the scale."""
    numbers = [0, 1, -1, 127, -128] + [5] * 27
    block = struct.pack("<e32b", 0.25, *numbers)
    assert values_of(types.Q8_0, block) == [0.25 * number for number in numbers]


@pytest.mark.parametrize("kind_id", GEOMETRY)
def test_random_blocks_equal_a_scalar_decoder(kind_id: int) -> None:
    """Every packed type agrees by bits with a decoder that was written from the byte layout."""
    kind = TENSOR_TYPES[kind_id]
    rows = random_rows(kind, 4, 3, seed=kind_id)
    expected = [
        [value for start in range(0, row.size, kind.nbytes)
         for value in decode_block(kind_id, row[start : start + kind.nbytes].tobytes()).values(kind_id)]
        for row in rows
    ]  # fmt: skip
    np.testing.assert_array_equal(dequantise(kind, rows), np.array(expected, np.float32))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q6_K", "TQ1_0", "TQ2_0"])
def test_random_blocks_equal_the_gguf_package(name: str) -> None:
    """Where the `gguf` package has a decoder of its own, it gives the same numbers."""
    kind = next(kind for kind in TENSOR_TYPES.values() if kind.name == name)
    rows = random_rows(kind, 3, 2, seed=5)
    np.testing.assert_array_equal(
        dequantise(kind, rows), dequantize(rows, gguf.GGMLQuantizationType(kind.id))
    )


@pytest.mark.parametrize("kind_id", GEOMETRY)
def test_formats_state_their_own_geometry(kind_id: int) -> None:
    """Step, zero and largest code of a format describe all that its codes can be."""
    kind = TENSOR_TYPES[kind_id]
    form = BLOCK_FORMATS[kind.name]
    assert (kind.block, kind.nbytes) == GEOMETRY[kind_id]
    assert (form.step, form.zero) == STEP_ZERO[kind_id]
    blocks = np.frombuffer(bytes(range(256)) * kind.nbytes, np.uint8).reshape(-1, kind.nbytes)
    codes = form.codes(blocks)
    assert codes.shape == (256, kind.block)
    assert codes.dtype == np.uint8
    assert codes.max() == form.largest


@given(st.lists(st.integers(0, 2), min_size=128, max_size=128))
def test_ternary_blocks_survive_packing(trits: list[int]) -> None:
    """PTQ1_0 packed by the definition, trits as base-3 digits of a scaled number, decodes to itself."""

    def packed(digits: list[int]) -> int:
        number = 0
        for digit in [*digits, 0][:5]:
            number = number * 3 + digit
        return (number * 256 + 242) // 243

    stages = [trits[m:80:16] for m in range(16)]
    stages += [trits[80 + m : 120 : 8] for m in range(8)]
    stages += [trits[120 + h :: 2] for h in range(2)]
    block = bytes(map(packed, stages)) + struct.pack("<e", 1.0)
    assert values_of(types.PTQ1_0, block) == [trit - 1.0 for trit in trits]


def test_dense_types_are_widened() -> None:
    """F32 stays, F16 and BF16 widen without rounding."""
    numbers = np.array([[1.5, -2.0, 0.15625, 65504.0]], np.float32)
    as_f16 = numbers.astype("<f2").view(np.uint8)
    as_bf16 = (np.array([[1.5, -2.0, 0.15625, 65280.0]], np.float32).view("<u4") >> 16).astype("<u2")
    np.testing.assert_array_equal(dequantise(types.F32, numbers.view(np.uint8)), numbers)
    np.testing.assert_array_equal(dequantise(types.F16, as_f16), numbers)
    np.testing.assert_array_equal(
        dequantise(types.BF16, as_bf16.view(np.uint8)), np.array([[1.5, -2.0, 0.15625, 65280.0]])
    )


def test_a_type_that_nothing_decodes_is_refused() -> None:
    """The error names the type."""
    unknown = TensorType("Q9_X", 200, 32, 40)
    with pytest.raises(UnsupportedTypeError, match=r"Q9_X \(id 200\)"):
        dequantise(unknown, np.zeros((1, 40), np.uint8))


def test_row_bytes_count_whole_blocks() -> None:
    """A row of the 27B's width in each of its published types."""
    assert types.PQ2_0.row_bytes(5120) == 40 * 34
    assert types.PTQ1_0.row_bytes(5120) == 40 * 28
    assert types.Q2_0.row_bytes(5120) == 80 * 18
    assert types.F32.row_bytes(5120) == 20480
