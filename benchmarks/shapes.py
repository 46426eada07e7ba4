"""The shapes of the models that are measured, as data: sizes, the keys that declare them, vocabularies.

Sources: the metadata of the released Bonsai files. The two tiny shapes are for trying the commands out.
Which tensors a shape has is in `tensors`; nothing here knows storage types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Keys = tuple[tuple[str, str, Any], ...]  # (name without the architecture, GGUF type, value)


@dataclass(frozen=True)
class VocabularySize:
    """`rows` tokens: 256 bytes, one for each of `merges`, a few special ones, and padding."""

    rows: int
    merges: int
    rule: str  # tokenizer.ggml.pre


@dataclass(frozen=True)
class DeltaSizes:
    """The Gated DeltaNet layers of `qwen35`; every `interval`th layer is full attention."""

    key_heads: int
    value_heads: int
    dim: int
    taps: int = 4
    interval: int = 4


@dataclass(frozen=True)
class Shape:
    """One model; `hadamard_block` is that of the folded form, where there is one."""

    name: str
    architecture: str
    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    tied: bool
    vocabulary: VocabularySize
    rope: Keys
    delta: DeltaSizes | None = None
    hadamard_block: int | None = None

    def is_attention(self, layer: int) -> bool:
        """Whether a layer is full attention."""
        return self.delta is None or (layer + 1) % self.delta.interval == 0

    def declared(self) -> Keys:
        """The metadata that declares these sizes."""
        return (
            ("block_count", "u32", self.layers),
            ("context_length", "u32", self.context),
            ("embedding_length", "u32", self.width),
            ("feed_forward_length", "u32", self.hidden),
            ("attention.head_count", "u32", self.heads),
            ("attention.head_count_kv", "u32", self.kv_heads),
            ("attention.key_length", "u32", self.head_dim),
            ("attention.value_length", "u32", self.head_dim),
            ("attention.layer_norm_rms_epsilon", "f32", 1e-6),
            *self.rope,
            *self._delta_keys(),
        )

    def _delta_keys(self) -> Keys:
        delta = self.delta
        if delta is None:
            return ()
        return (
            ("ssm.conv_kernel", "u32", delta.taps),
            ("ssm.state_size", "u32", delta.dim),
            ("ssm.group_count", "u32", delta.key_heads),
            ("ssm.time_step_rank", "u32", delta.value_heads),
            ("ssm.inner_size", "u32", delta.dim * delta.value_heads),
            ("full_attention_interval", "u32", delta.interval),
        )


QWEN3_VOCABULARY = VocabularySize(rows=151_669, merges=151_387, rule="qwen2")
QWEN35_VOCABULARY = VocabularySize(rows=248_320, merges=247_587, rule="qwen35")

ROPE_QWEN3: Keys = (("rope.freq_base", "f32", 1e6),)
ROPE_YARN: Keys = (
    *ROPE_QWEN3,
    ("rope.scaling.type", "string", "yarn"),
    ("rope.scaling.factor", "f32", 4.0),
    ("rope.scaling.original_context_length", "u32", 16_384),
)
ROPE_QWEN35: Keys = (
    ("rope.freq_base", "f32", 1e7),
    ("rope.dimension_count", "u32", 64),
    ("rope.dimension_sections", "[i32]", (11, 11, 10, 0)),
)


def _qwen3(name: str, layers: int, width: int, hidden: int, heads: int, *, tied: bool, yarn: bool) -> Shape:
    return Shape(
        name,
        "qwen3",
        layers,
        width,
        hidden,
        heads,
        kv_heads=8,
        head_dim=128,
        context=65_536 if yarn else 32_768,
        tied=tied,
        vocabulary=QWEN3_VOCABULARY,
        rope=ROPE_YARN if yarn else ROPE_QWEN3,
    )


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        _qwen3("1.7b", 28, 2048, 6144, 16, tied=True, yarn=False),
        _qwen3("4b", 36, 2560, 9728, 32, tied=True, yarn=False),
        _qwen3("8b", 36, 4096, 12_288, 32, tied=False, yarn=True),
        Shape(
            name="27b",
            architecture="qwen35",
            layers=64,
            width=5120,
            hidden=17_408,
            heads=24,
            kv_heads=4,
            head_dim=256,
            context=262_144,
            tied=False,
            vocabulary=QWEN35_VOCABULARY,
            rope=ROPE_QWEN35,
            delta=DeltaSizes(key_heads=16, value_heads=48, dim=128),
            hadamard_block=1024,
        ),
        Shape(
            name="tiny-qwen3",
            architecture="qwen3",
            layers=2,
            width=256,
            hidden=512,
            heads=4,
            kv_heads=2,
            head_dim=128,
            context=1024,
            tied=True,
            vocabulary=VocabularySize(rows=560, merges=290, rule="qwen2"),
            rope=ROPE_QWEN3,
        ),
        Shape(
            name="tiny-qwen35",
            architecture="qwen35",
            layers=4,
            width=256,
            hidden=512,
            heads=4,
            kv_heads=2,
            head_dim=256,
            context=1024,
            tied=False,
            vocabulary=VocabularySize(rows=560, merges=290, rule="qwen35"),
            rope=ROPE_QWEN35,
            delta=DeltaSizes(key_heads=2, value_heads=6, dim=64),
            hadamard_block=128,
        ),
    )
}
