from __future__ import annotations

import pytest

from benchmarks.gguf_file import header
from benchmarks.shapes import SHAPES, Shape
from engine.gguf import Metadata, parse_header
from engine.graphs.rope import rope_table
from engine.graphs.transformer import Sizes
from engine.kernels.canon import Floats


def metadata_of(shape: Shape) -> Metadata:
    """The keys of a shape as the engine reads them from a file."""
    keys = [(f"{shape.architecture}.{name}", kind, value) for name, kind, value in shape.declared()]
    data = header([("general.architecture", "string", shape.architecture), *keys], [])
    return parse_header(data, len(data)).metadata


def cosines(name: str) -> Floats:
    """The cosines of the first positions, [positions, pairs]."""
    shape = SHAPES[name]
    return rope_table(metadata_of(shape), shape.architecture, shape.head_dim, 4).cosines


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_declared_sizes(shape: Shape) -> None:
    """The engine reads the sizes of a shape from the keys that declare it."""
    sizes = Sizes.from_metadata(metadata_of(shape), shape.vocabulary.rows)
    assert (sizes.layers, sizes.width, sizes.feed_forward) == (shape.layers, shape.width, shape.hidden)
    assert (sizes.attention.heads, sizes.attention.kv_heads) == (shape.heads, shape.kv_heads)
    assert sizes.attention.key_dim == sizes.attention.value_dim == shape.head_dim


def test_rope() -> None:
    """8b has YaRN of factor 4, whose magnitude is 1 + 0.1 ln 4; 27b rotates 64 of 256 dimensions."""
    assert cosines("8b")[0] == pytest.approx([1.138629] * 64, abs=1e-6)
    assert cosines("1.7b")[0] == pytest.approx([1.0] * 64)
    assert cosines("27b").shape == (4, 32)
    assert SHAPES["8b"].context == 4 * 16_384


def test_full_attention_layers_of_27b() -> None:
    """Every fourth layer of 27b is full attention, the last one of them layer 63."""
    layers = [layer for layer in range(64) if SHAPES["27b"].is_attention(layer)]
    assert (len(layers), layers[0], layers[-1]) == (16, 3, 63)
