"""The `prism.hadamard.*` contract of Bonsai 2 files: which weights are folded, and how inputs are rotated.

A folded matrix was stored as W · diag(s) · H, so its input x must become H (s ⊙ x) first; an embedding on
the inverse list gives z, and s ⊙ (H z) is what the graph continues with. H is the normalised Sylvester
matrix in natural order on every `block_size` inputs. Sources: the keys and load checks of the Prism fork.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.errors import MetadataError, UnsupportedContractError
from engine.gguf import Metadata
from engine.kernels.canon import Floats, Indices, Rotation

_PREFIX = "prism.hadamard."
_TRANSFORM = "normalized-sylvester-walsh-hadamard"
_AXIS = "input-last-dimension"
_EMBEDDING = "token_embd.weight"
_ATTENTION_KINDS = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate", "attn_output")
_LAYER_KINDS = frozenset((*_ATTENTION_KINDS, "ffn_gate", "ffn_up", "ffn_down", "ssm_out"))


@dataclass(frozen=True)
class HadamardContract:
    """A validated contract: `rotation(name)` gives what to do to the input of a tensor."""

    block: int
    signs: dict[int, Floats]
    folded: frozenset[str]
    inverse: frozenset[str]
    grouped_values: bool | None
    _rotations: dict[tuple[int, bool], Rotation] = field(default_factory=dict)

    def rotation(self, name: str, width: int, order: Indices | None = None) -> Rotation | None:
        """The rotation of the input of tensor `name`, None if it is not folded.

        `order` is the permutation that this tensor needs first; one rotation is shared by all tensors of
        a width that agree in whether they have one.
        """
        if name not in self.folded and name not in self.inverse:
            return None
        key = (width, order is not None)
        if key not in self._rotations:
            self._rotations[key] = Rotation(self.block, self.signs[width], order)
        return self._rotations[key]


def read_contract(metadata: Metadata, shapes: dict[str, tuple[int, ...]]) -> HadamardContract | None:
    """The contract that a file declares, checked against its tensors' shapes; None if it declares none.

    Raises UnsupportedContractError for a version, transform, axis or sign mode that is not implemented,
    MetadataError for anything inconsistent.
    """
    if not any(key.startswith(_PREFIX) for key in metadata):
        return None
    _require_known_form(metadata)
    block = metadata.uint(_PREFIX + "block_size")
    if block == 0 or block & (block - 1):
        raise MetadataError(f"{_PREFIX}block_size is {block}, not a power of two")
    folded = _names(metadata, "weight_names")
    inverse = _names(metadata, "inverse_weight_names", required=False)
    if not folded:
        raise MetadataError(f"{_PREFIX}weight_names is empty")
    for name in folded:
        parts = name.split(".")
        layer_kind = len(parts) == 4 and parts[0] == "blk" and parts[1].isdecimal()
        allowed = layer_kind and parts[2] in _LAYER_KINDS and parts[3] == "weight"
        if not allowed and name != "output.weight":
            raise MetadataError(f"{_PREFIX}weight_names has {name}, which cannot be folded")
    if inverse - {_EMBEDDING}:
        raise MetadataError(f"{_PREFIX}inverse_weight_names may only name {_EMBEDDING}")
    signs = _signs(metadata, block)
    for name in sorted(folded | inverse):
        if name not in shapes:
            raise MetadataError(f"{_PREFIX} names tensor {name}, which the file does not have")
        if shapes[name][0] not in signs:
            raise MetadataError(f"{_PREFIX}sign_widths has no {shapes[name][0]}, the input width of {name}")
    grouped_key = _PREFIX + "gdn_v_grouped"
    grouped = metadata.boolean(grouped_key) if grouped_key in metadata else None
    if grouped is None and any(".ssm_out." in name for name in folded):
        raise MetadataError(f"a folded ssm_out needs the key {grouped_key}; without it the file is ambiguous")
    return HadamardContract(block, signs, folded, inverse, grouped)


def _require_known_form(metadata: Metadata) -> None:
    version = metadata.uint(_PREFIX + "version")
    if version != 1:
        raise UnsupportedContractError(f"{_PREFIX}version is {version}; this engine implements version 1")
    known = {"transform": (_TRANSFORM,), "axis": (_AXIS,), "sign_mode": ("explicit", "identity")}
    for key, values in known.items():
        value = metadata.string(_PREFIX + key)
        if value not in values:
            raise UnsupportedContractError(f"{_PREFIX}{key} is {value!r}; implemented: {', '.join(values)}")


def _names(metadata: Metadata, key: str, required: bool = True) -> frozenset[str]:
    if not required and _PREFIX + key not in metadata:
        return frozenset()
    names = metadata.strings(_PREFIX + key)
    if len(set(names)) != len(names):
        raise MetadataError(f"{_PREFIX}{key} names a tensor twice")
    return frozenset(names)


def _signs(metadata: Metadata, block: int) -> dict[int, Floats]:
    widths = [int(width) for width in metadata.integers(_PREFIX + "sign_widths")]
    if any(width <= 0 or width % block for width in widths) or len(set(widths)) != len(widths):
        raise MetadataError(f"{_PREFIX}sign_widths must be distinct positive multiples of {block}")
    if metadata.string(_PREFIX + "sign_mode") == "identity":
        return {width: np.ones(width, np.float32) for width in widths}
    values = metadata.integers(_PREFIX + "sign_values")
    if len(values) != sum(widths):
        raise MetadataError(f"{_PREFIX}sign_values has {len(values)} values for {sum(widths)} inputs")
    if not np.all(np.abs(values) == 1):
        raise MetadataError(f"{_PREFIX}sign_values has a value other than 1 and -1")
    ends = np.cumsum(widths)
    return {
        width: values[end - width : end].astype(np.float32) for width, end in zip(widths, ends, strict=True)
    }
