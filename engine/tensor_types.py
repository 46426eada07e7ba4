"""The table of GGUF tensor types: name, id, weights a block and bytes a block.

Block geometry is what the layout proof needs; how a block's bytes become numbers is in `quantisation`.
Ids 41 and 42 are ggml's own, 142 and 143 are the Prism fork's; id 42 exists in two geometries in the
wild, which only the tensor offsets can tell apart (see `layout`). Sources: ggml's type table of 2026-10
and the block structures of the Prism fork.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """One storage type: `block` weights along the input axis take `nbytes` bytes."""

    name: str
    id: int
    block: int
    nbytes: int

    def row_bytes(self, inputs: int) -> int:
        """Bytes of one row of `inputs` weights; `inputs` must be a multiple of `block`."""
        return inputs // self.block * self.nbytes


F32 = TensorType("F32", 0, 1, 4)
F16 = TensorType("F16", 1, 1, 2)
BF16 = TensorType("BF16", 30, 1, 2)
Q4_0 = TensorType("Q4_0", 2, 32, 18)
Q4_1 = TensorType("Q4_1", 3, 32, 20)
Q5_0 = TensorType("Q5_0", 6, 32, 22)
Q5_1 = TensorType("Q5_1", 7, 32, 24)
Q8_0 = TensorType("Q8_0", 8, 32, 34)
Q1_0 = TensorType("Q1_0", 41, 128, 18)
Q2_0 = TensorType("Q2_0", 42, 64, 18)
PQ2_0 = TensorType("PQ2_0", 142, 128, 34)
PTQ1_0 = TensorType("PTQ1_0", 143, 128, 28)

# The group-128 form that early Prism files carry under id 42; its blocks are PQ2_0's to the byte.
LEGACY_Q2_0 = TensorType("PQ2_0", 42, 128, 34)

TENSOR_TYPES: dict[int, TensorType] = {
    t.id: t
    for t in (
        F32,
        F16,
        BF16,
        Q4_0,
        Q4_1,
        Q5_0,
        Q5_1,
        Q8_0,
        Q1_0,
        Q2_0,
        PQ2_0,
        PTQ1_0,
        TensorType("Q2_K", 10, 256, 84),
        TensorType("Q3_K", 11, 256, 110),
        TensorType("Q4_K", 12, 256, 144),
        TensorType("Q5_K", 13, 256, 176),
        TensorType("Q6_K", 14, 256, 210),
        TensorType("IQ2_XXS", 16, 256, 66),
        TensorType("IQ2_XS", 17, 256, 74),
        TensorType("IQ3_XXS", 18, 256, 98),
        TensorType("IQ1_S", 19, 256, 50),
        TensorType("IQ4_NL", 20, 32, 18),
        TensorType("IQ3_S", 21, 256, 110),
        TensorType("IQ2_S", 22, 256, 82),
        TensorType("IQ4_XS", 23, 256, 136),
        TensorType("IQ1_M", 29, 256, 56),
        TensorType("TQ1_0", 34, 256, 54),
        TensorType("TQ2_0", 35, 256, 66),
        TensorType("MXFP4", 39, 32, 17),
    )
}
