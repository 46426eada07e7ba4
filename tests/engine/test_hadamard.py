from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import ArtifactError, MetadataError, UnsupportedContractError
from engine.hadamard import HadamardContract, read_contract
from engine.kernels.canon import Rotation
from tests.float64_graph import hadamard_matrix
from tests.gguf_writer import GgufWriter
from tests.vocabularies import metadata_of

SHAPES: dict[str, tuple[int, ...]] = {
    "token_embd.weight": (8, 10),
    "output.weight": (8, 10),
    "blk.0.ffn_up.weight": (8, 12),
    "blk.0.ffn_down.weight": (12, 8),
    "blk.0.ssm_out.weight": (12, 8),
    "blk.0.ssm_alpha.weight": (8, 2),
}
SIGNS = [1, -1, -1, 1, 1, 1, -1, 1] + [-1, 1] * 6
KEYS: dict[str, tuple[str, Any]] = {
    "version": ("u32", 1),
    "block_size": ("u32", 4),
    "transform": ("string", "normalized-sylvester-walsh-hadamard"),
    "axis": ("string", "input-last-dimension"),
    "sign_mode": ("string", "explicit"),
    "sign_widths": ("[i32]", [8, 12]),
    "sign_values": ("[i32]", SIGNS),
    "weight_names": ("[string]", ["output.weight", "blk.0.ffn_up.weight", "blk.0.ssm_out.weight"]),
    "inverse_weight_names": ("[string]", ["token_embd.weight"]),
    "gdn_v_grouped": ("bool", True),
}


def contract(**changes: tuple[str, Any] | None) -> HadamardContract | None:
    """The contract of `KEYS` with some keys replaced, or left out where the change is None."""
    writer = GgufWriter()
    for name, entry in (KEYS | changes).items():
        if entry is not None:
            writer.add(f"prism.hadamard.{name}", *entry)
    return read_contract(metadata_of(writer), SHAPES)


def valid(**changes: tuple[str, Any] | None) -> HadamardContract:
    """As `contract`, where one is expected."""
    found = contract(**changes)
    assert found is not None
    return found


def test_a_file_without_keys_has_no_contract() -> None:
    """Other keys do not matter."""
    assert read_contract(metadata_of(GgufWriter().add("general.name", "string", "x")), SHAPES) is None


def test_every_key_is_read() -> None:
    """Block size, signs by width, both lists of names and the order of values."""
    found = valid()
    assert found.block == 4
    assert found.signs[8].tolist() == SIGNS[:8]
    assert found.signs[12].tolist() == SIGNS[8:]
    assert found.folded == {"output.weight", "blk.0.ffn_up.weight", "blk.0.ssm_out.weight"}
    assert found.inverse == {"token_embd.weight"}
    assert found.grouped_values is True


def test_identity_signs_need_no_values() -> None:
    """All signs are plus one."""
    found = valid(sign_mode=("string", "identity"), sign_values=None)
    assert found.signs[12].tolist() == [1] * 12


def test_the_inverse_list_may_be_absent() -> None:
    """Then the embedding is stored plainly."""
    found = valid(inverse_weight_names=None)
    assert found.rotation("token_embd.weight", 8) is None


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"version": ("u32", 2)}, UnsupportedContractError, "version is 2"),
        ({"transform": ("string", "sequency")}, UnsupportedContractError, "'sequency'"),
        ({"axis": ("string", "output")}, UnsupportedContractError, "axis"),
        ({"sign_mode": ("string", "random")}, UnsupportedContractError, "explicit, identity"),
        ({"version": None}, MetadataError, "version"),
        ({"sign_mode": None}, MetadataError, "sign_mode"),
        ({"block_size": ("u32", 6)}, MetadataError, "6, not a power of two"),
        ({"block_size": ("u32", 0)}, MetadataError, "0, not a power of two"),
        ({"block_size": ("u32", 8)}, MetadataError, "multiples of 8"),
        ({"sign_widths": ("[i32]", [8, -12])}, MetadataError, "sign_widths"),
        ({"sign_widths": ("[i32]", [8, 8])}, MetadataError, "distinct"),
        ({"sign_values": ("[i32]", SIGNS[1:])}, MetadataError, "19 values for 20 inputs"),
        ({"sign_values": ("[i32]", [0, *SIGNS[1:]])}, MetadataError, "other than 1 and -1"),
        ({"weight_names": ("[string]", [])}, MetadataError, "empty"),
        ({"weight_names": ("[string]", ["output.weight"] * 2)}, MetadataError, "twice"),
        ({"weight_names": ("[string]", ["blk.0.ssm_alpha.weight"])}, MetadataError, "cannot be folded"),
        ({"weight_names": ("[string]", ["token_embd.weight"])}, MetadataError, "cannot be folded"),
        ({"weight_names": ("[string]", ["blk.x.ffn_up.weight"])}, MetadataError, "cannot be folded"),
        ({"weight_names": ("[string]", ["blk.1.ffn_up.weight"])}, MetadataError, "does not have"),
        ({"inverse_weight_names": ("[string]", ["output.weight"])}, MetadataError, "may only name"),
        ({"sign_widths": ("[i32]", [12]), "sign_values": ("[i32]", SIGNS[:12])}, MetadataError, "no 8"),
        ({"gdn_v_grouped": None}, MetadataError, "ambiguous"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(
    changes: dict[str, tuple[str, Any] | None], error: type[ArtifactError], words: str
) -> None:
    """Another contract, or one that does not fit the tensors, is named in the error."""
    with pytest.raises(error, match=words):
        contract(**changes)


def test_the_order_of_values_may_be_absent_without_a_folded_ssm_out() -> None:
    """Only that matrix depends on it."""
    found = valid(gdn_v_grouped=None, weight_names=("[string]", ["output.weight"]))
    assert found.grouped_values is None


def test_a_rotation_signs_first_and_transforms_then() -> None:
    """H (s ⊙ x) for inputs, s ⊙ (H z) for embeddings, by the matrix itself."""
    rotation = valid().rotation("output.weight", 8)
    assert rotation is not None
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    matrix = np.kron(np.eye(2), hadamard_matrix(4))  # two blocks; symmetric
    signs = np.array(SIGNS[:8])
    np.testing.assert_array_equal(rotation.apply(x), (x * signs) @ matrix)
    np.testing.assert_array_equal(rotation.invert(x), (x @ matrix) * signs)
    np.testing.assert_array_equal(rotation.invert(rotation.apply(x)), x)


def test_a_permutation_comes_before_the_signs() -> None:
    """Features are taken in the given order, then signed, then transformed."""
    order = np.array([2, 0, 3, 1])
    signs = np.array([1, -1, 1, 1], np.float32)
    found = Rotation(4, signs, order).apply(np.array([[1, 2, 4, 8]], np.float32))
    np.testing.assert_array_equal(found, [[(4 - 1 + 8 + 2) / 2, (4 + 1 + 8 - 2) / 2,
                                           (4 - 1 - 8 - 2) / 2, (4 + 1 - 8 + 2) / 2]])  # fmt: skip


def test_tensors_of_a_width_share_a_rotation_unless_one_is_permuted() -> None:
    """So one transformed activation serves all projections that read it."""
    found = valid()
    first = found.rotation("output.weight", 8)
    assert first is not None
    assert found.rotation("blk.0.ffn_up.weight", 8) is first
    assert found.rotation("token_embd.weight", 8) is first
    permuted = found.rotation("blk.0.ssm_out.weight", 12, np.arange(12))
    assert permuted is not None
    assert permuted.order is not None
    assert found.rotation("blk.0.ffn_down.weight", 12) is None
