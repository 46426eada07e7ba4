from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.decoder import Step
from engine.errors import MetadataError, UnsupportedArchitectureError
from engine.tensor_types import TENSOR_TYPES as KINDS
from tests.float64_graph import Float64Model
from tests.gguf_writer import BF16, F16, F32, PQ2_0, GgufWriter
from tests.models import (
    MODELS,
    Q6_K,
    TQ2_0,
    build_decoder,
    clear_best,
    golden_decoder,
    golden_ids,
    golden_logits,
    model_path,
    qwen35_file,
    relative_rmse,
    transformer_file,
    unfolded_file,
)
from tests.scalar_blocks import GEOMETRY

NAMES = sorted(path.stem for path in MODELS.glob("tiny-*.gguf"))
FOLDED = [name for name in NAMES if name.endswith("-had")]
IDS = golden_ids()

# What activation rounding costs, and the margin above which the best id is certain (tests/data/ORIGIN.md).
TOLERANCE = {8: 0.03, 16: 0.0006}
CERTAIN = 0.25

YARN = {
    "rope.freq_base": ("f32", 1e6),
    "rope.scaling.type": ("string", "yarn"),
    "rope.scaling.factor": ("f32", 4.0),
    "rope.scaling.original_context_length": ("u32", 128),
}
LINEAR = {"rope.scaling.type": ("string", "linear"), "rope.scaling.factor": ("f32", 3.0)}


def golden(name: str, bits: int) -> NDArray[np.float32]:
    """The logits of a golden model on all 48 positions."""
    decoder = golden_decoder(name, bits)
    return decoder.evaluate([Step(decoder.new_state(), IDS, "all")])[0]


def ours(writer: GgufWriter, ids: list[int], bits: int = 16) -> NDArray[np.float32]:
    """The logits of a written file on all positions."""
    decoder = build_decoder(writer.build(), bits=bits)
    return decoder.evaluate([Step(decoder.new_state(), ids, "all")])[0]


def random_ids(count: int = 24, below: int = 256) -> list[int]:
    """Token ids for the random models."""
    ids: list[int] = np.random.default_rng(9).integers(0, below, count).tolist()
    return ids


def test_every_golden_model_is_here() -> None:
    """Both architectures, every packed type, folded and unfolded, tied and untied."""
    assert len(NAMES) == 14
    assert len(FOLDED) == 4
    assert {name.split("-")[2] for name in NAMES} == {"q1_0", "q2_0", "pq2_0", "ptq1_0", "q8_0"}


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", NAMES)
def test_logits_meet_another_engine(name: str, bits: int) -> None:
    """Within what the rounding of activations costs; the best id agrees wherever it leads clearly."""
    stored = golden_logits()
    found = golden(name, bits)
    exact = stored.get(f"{name}__exact")
    if exact is None:  # a tied file has only the other engine's own 8-bit run, which is as far off itself
        exact = stored[f"{name}__int8"]
        assert relative_rmse(found, exact) < TOLERANCE[8]
    else:
        assert relative_rmse(found, exact) < TOLERANCE[bits]
    certain = clear_best(exact, CERTAIN)
    assert certain.any()
    np.testing.assert_array_equal(found.argmax(-1)[certain], exact.argmax(-1)[certain])


@pytest.mark.parametrize("name", [name for name in NAMES if f"{name}__int8" in golden_logits()])
def test_both_engines_at_8_bits_are_close(name: str) -> None:
    """They round in different blocks, so each is off by itself and the two at most by both together."""
    assert relative_rmse(golden(name, 8), golden_logits()[f"{name}__int8"]) < 2 * TOLERANCE[8]


@pytest.mark.parametrize("name", NAMES)
def test_logits_meet_float64(name: str) -> None:
    """An evaluation without any rounding agrees with the other engine to 1e-6 and with this one to 0.0006."""
    exact = Float64Model(model_path(name).read_bytes()).logits(IDS)
    if f"{name}__exact" in golden_logits():
        assert relative_rmse(golden_logits()[f"{name}__exact"], exact) < 1e-6
    assert relative_rmse(golden(name, 16), exact) < TOLERANCE[16]
    assert relative_rmse(golden(name, 8), exact) < TOLERANCE[8]


@pytest.mark.parametrize("name", FOLDED)
def test_a_folded_model_means_its_unfolded_twin(name: str) -> None:
    """In float64 the two are one; computed, they differ by the rounding of activations alone."""
    data = model_path(name).read_bytes()
    exact = golden_logits()[f"{name}__exact"]
    folded, unfolded = Float64Model(data).logits(IDS), Float64Model(data, unfold=True).logits(IDS)
    assert relative_rmse(folded, unfolded) < 1e-12
    twin = ours(unfolded_file(data), IDS)  # float weights: what is left is the fp16 cache
    assert relative_rmse(twin, exact) < 0.0002
    assert relative_rmse(golden(name, 16), twin) < TOLERANCE[16]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", ["tiny-qwen3-{}", "tiny-qwen35-{}", "tiny-qwen35-{}-had"])
def test_ptq1_0_equals_pq2_0_by_bits(name: str, bits: int) -> None:
    """The same codes and scales packed more tightly give the same bytes."""
    assert golden(name.format("ptq1_0"), bits).tobytes() == golden(name.format("pq2_0"), bits).tobytes()


@pytest.mark.parametrize("kind", [*GEOMETRY, F32, F16, BF16, TQ2_0, Q6_K], ids=lambda kind: KINDS[kind].name)
def test_llama_of_every_type_meets_float64(kind: int) -> None:
    """A random model whose head dimension is not width / heads, in every weight type."""
    writer = transformer_file("llama", kind)
    exact = Float64Model(writer.build()).logits(random_ids())
    error = relative_rmse(ours(writer, random_ids()), exact)
    assert error < TOLERANCE[16]
    if kind in GEOMETRY:  # float weights take activations as they are
        assert error < relative_rmse(ours(writer, random_ids(), bits=8), exact) < TOLERANCE[8]


@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "qwen3", "keys": YARN},
        {"architecture": "llama", "keys": YARN | {"rope.scaling.attn_factor": ("f32", 0.8)}},
        {"architecture": "qwen3", "keys": LINEAR},
        {"architecture": "llama", "keys": {"rope.dimension_count": ("u32", 64)}, "tied": True},
        {"architecture": "llama", "keys": {"attention.scale": ("f32", 0.05)}, "divisors": 64},
        {"architecture": "qwen3", "tied": True},
    ],
    ids=["yarn-qwen3", "yarn-llama", "linear", "partial-tied", "scale-frequencies", "tied"],
)
def test_settings_of_transformers_meet_float64(options: dict[str, object]) -> None:
    """Everything that a file can say about rotation, scale and output is followed."""
    writer = transformer_file(kind=F32, **options)  # type: ignore[arg-type]
    exact = Float64Model(writer.build()).logits(random_ids())
    assert relative_rmse(ours(writer, random_ids()), exact) < TOLERANCE[16]
    plain = Float64Model(transformer_file(str(options["architecture"]), F32).build()).logits(random_ids())
    assert relative_rmse(plain, exact) > 20 * TOLERANCE[16]  # the setting does matter


def test_frequency_divisors_follow_the_rotated_dimensions() -> None:
    """With partial rotation there are as many divisors as pairs that turn."""
    writer = transformer_file(keys={"rope.dimension_count": ("u32", 64)}, divisors=32)
    exact = Float64Model(writer.build()).logits(random_ids())
    assert relative_rmse(ours(writer, random_ids()), exact) < TOLERANCE[16]


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("folded", [False, True], ids=["plain", "folded"])
@pytest.mark.parametrize("kind", [PQ2_0, F32], ids=["PQ2_0", "F32"])
def test_qwen35_meets_float64(kind: int, folded: bool, tied: bool) -> None:
    """Three value heads a key head, so no permutation is its own inverse; tied outputs are rotated too."""
    writer = qwen35_file(kind, folded=folded, tied=tied)
    exact = Float64Model(writer.build()).logits(random_ids())
    assert relative_rmse(ours(writer, random_ids()), exact) < TOLERANCE[16]


def test_prediction_blocks_are_skipped() -> None:
    """A file with two trailing blocks gives the bytes of the same file without them."""
    with_blocks = ours(qwen35_file(predictors=2), random_ids())
    assert with_blocks.tobytes() == ours(qwen35_file(), random_ids()).tobytes()


def test_recurrent_layers_may_be_listed() -> None:
    """The explicit list wins over the interval; booleans and integers mean the same."""
    expected = ours(qwen35_file(), random_ids()).tobytes()
    for kind in ("[bool]", "[i32]"):
        keys = {"full_attention_interval": ("u32", 3), "attention.recurrent_layers": (kind, [1, 0, 1])}
        assert ours(qwen35_file(keys=keys), random_ids()).tobytes() == expected


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"nextn_predict_layers": ("u32", 3)}, "3 of 3 blocks"),
        ({"full_attention_interval": ("u32", 0)}, "interval is 0"),
        ({"attention.recurrent_layers": ("[i32]", [1])}, "1 entries for 3 layers"),
        ({"ssm.state_size": ("u32", 24)}, "multiple of 16"),
        ({"ssm.time_step_rank": ("u32", 5)}, "of group_count 2"),
        ({"ssm.inner_size": ("u32", 100)}, "expected 64 x 6"),
        ({"ssm.conv_kernel": ("u32", 1)}, "conv_kernel is 1"),
        ({"rope.dimension_sections": ("[i32]", [1, 2])}, "four numbers"),
        ({"attention.value_length": ("u32", 32)}, "values as long as keys"),
        ({"attention.head_count": ("u32", 5)}, "5 heads cannot share 2"),
        ({"attention.head_count_kv": ("u32", 0)}, "head_count_kv is 0"),
        ({"attention.layer_norm_rms_epsilon": ("f32", 1.0)}, "epsilon is 1"),
        ({"block_count": ("u32", 513)}, "the limit is 512"),
        ({"embedding_length": ("u32", 128)}, r"shape \[256, 640\], expected \[128, 640\]"),
    ],
)
def test_impossible_settings_are_refused(keys: dict[str, tuple[str, object]], words: str) -> None:
    """Before anything is computed, and with the key or tensor in the message."""
    with pytest.raises(MetadataError, match=words):
        build_decoder(qwen35_file(keys=keys).build())


def test_a_tensor_without_a_place_is_refused() -> None:
    """Ignoring a bias would change what the model says."""
    writer = transformer_file().tensor("blk.0.attn_q.bias", (512,), F32)
    with pytest.raises(UnsupportedArchitectureError, match=r"blk\.0\.attn_q\.bias"):
        build_decoder(writer.build())
