"""The promise of `canon-2`: whatever the blocks, batches, threads, checkpoints or memory, the same bytes.

Every case is compared with one evaluation of the whole sequence on one thread of the first backend: the
logits of all positions, and every array of the state afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from engine.decoder import Decoder, Step
from engine.kernels.canon import Floats
from engine.runtime import GenerationOptions, Runtime
from engine.state import State
from tests.gguf_writer import Q4_1
from tests.models import (
    BACKENDS,
    EXPAND_ALL,
    Recorder,
    build_decoder,
    golden_ids,
    memory_bytes,
    model_path,
    transformer_file,
)

MODELS = ["tiny-qwen3-pq2_0", "tiny-qwen35-q1_0", "tiny-qwen35-ptq1_0-had", "tiny-qwen3-q8_0", "random-q4_1"]
CONTEXT = 320
IDS = golden_ids()
OTHER = IDS[::-1]
LAST = IDS[7:20]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that the machine has."""
    return str(request.param)


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """Every architecture, folded and not, in types of every kind."""
    return str(request.param)


@cache
def file_of(name: str) -> bytes:
    """The bytes of a golden model or of the random one."""
    if name == "random-q4_1":
        return transformer_file("llama", Q4_1).build()
    return model_path(name).read_bytes()


@cache
def decoder_of(
    name: str, backend: str, threads: int = 1, expansion_bytes: int = EXPAND_ALL, bits: int = 16
) -> Decoder:
    """A decoder in one configuration."""
    return build_decoder(
        file_of(name),
        bits=bits,
        context=CONTEXT,
        threads=threads,
        expansion_bytes=expansion_bytes,
        backend=backend,
    )


@cache
def ids_of(name: str, ids: tuple[int, ...]) -> tuple[int, ...]:
    """Ids within the model's vocabulary."""
    size = decoder_of(name, next(iter(BACKENDS))).vocabulary_size
    return tuple(token % size for token in ids)


@cache
def reference(name: str, ids: tuple[int, ...], bits: int = 16) -> tuple[Floats, list[bytes]]:
    """Logits and state of one evaluation of all ids."""
    decoder = decoder_of(name, next(iter(BACKENDS)), bits=bits)
    state = decoder.new_state()
    return decoder.evaluate([Step(state, ids, "all")])[0], memory_bytes(state)


def in_blocks(decoder: Decoder, state: State, ids: Sequence[int], block: int) -> Floats:
    """The logits of all positions, evaluated a block at a time."""
    parts = [
        decoder.evaluate([Step(state, ids[start : start + block], "all")])[0]
        for start in range(0, len(ids), block)
    ]
    return np.concatenate(parts)


def check(name: str, ids: tuple[int, ...], logits: Floats, state: State, bits: int = 16) -> None:
    """Compare bytes with the reference for the same ids."""
    expected, memories = reference(name, ids, bits)
    assert logits.tobytes() == expected[-len(logits) :].tobytes()
    assert memory_bytes(state) == memories


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("block", [1, 3, 16, 256])
def test_prefill_blocks(name: str, backend: str, block: int, bits: int) -> None:
    """However a prompt is cut."""
    ids = ids_of(name, tuple(IDS))
    decoder = decoder_of(name, backend, bits=bits)
    state = decoder.new_state()
    check(name, ids, in_blocks(decoder, state, ids, block), state, bits)


@pytest.mark.parametrize("block", [64, 256])
def test_long_prompts(name: str, backend: str, block: int) -> None:
    """Where the arrays of one block are so large that a backend works through them in tiles."""
    ids = ids_of(name, tuple(np.random.default_rng(3).integers(0, 1024, CONTEXT).tolist()))
    decoder = decoder_of(name, backend)
    state = decoder.new_state()
    check(name, ids, in_blocks(decoder, state, ids, block), state)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("expansion_bytes", [0, EXPAND_ALL], ids=["expanded-anew", "expanded-once"])
@pytest.mark.parametrize("block", [1, 48])
def test_threads_and_memory(name: str, backend: str, threads: int, expansion_bytes: int, block: int) -> None:
    """However the rows are shared out, and whether expanded weights are kept."""
    ids = ids_of(name, tuple(IDS))
    decoder = decoder_of(name, backend, threads, expansion_bytes)
    state = decoder.new_state()
    check(name, ids, in_blocks(decoder, state, ids, block), state)


@pytest.mark.parametrize("threads", [1, 3])
def test_three_sequences_in_one_batch(name: str, backend: str, threads: int) -> None:
    """Ragged steps of three sequences, first prompts of unequal length and then single tokens and more."""
    decoder = decoder_of(name, backend, threads)
    sequences = [ids_of(name, tuple(ids)) for ids in (IDS, OTHER, LAST)]
    states = [decoder.new_state() for _ in sequences]
    logits: list[list[Floats]] = [[], [], []]
    for start, stop in ((0, 10), (10, 11), (11, 12), (12, 48)):
        steps = [
            Step(state, ids[start:stop], "all")
            for state, ids in zip(states, sequences, strict=True)
            if ids[start:stop]
        ]
        for rows, found in zip(logits, decoder.evaluate(steps), strict=False):
            rows.append(found)
    for ids, state, parts in zip(sequences, states, logits, strict=True):
        check(name, ids, np.concatenate(parts), state)


def test_a_checkpoint_restored_in_the_middle(name: str, backend: str) -> None:
    """A detour with other tokens leaves no trace."""
    decoder = decoder_of(name, backend)
    ids = ids_of(name, tuple(IDS))
    state = decoder.new_state()
    decoder.evaluate([Step(state, ids[:20], "none")])
    middle = state.checkpoint(20)
    decoder.evaluate([Step(state, ids_of(name, tuple(OTHER)), "none")])
    state.restore(middle)
    logits = in_blocks(decoder, state, ids[20:], 9)
    check(name, ids, logits, state)


def test_a_reused_prefix_equals_a_cold_one(name: str, backend: str) -> None:
    """A runtime that answered another request before ends in the state of a fresh one, logits included."""
    decoder = decoder_of(name, backend)
    first, second = ids_of(name, tuple(IDS)), ids_of(name, tuple(IDS[:30] + OTHER))
    options = GenerationOptions(4, (), prefill_block=7, stable_prefix=25)
    warm, cold = (Runtime(decoder, checkpoint_bytes=1 << 24) for _ in range(2))
    warm.generate_sampled(first, options, Recorder())
    seen, fresh = Recorder(), Recorder()
    done = warm.generate_sampled(second, options, seen)
    alone = cold.generate_sampled(second, options, fresh)
    assert done.reused_tokens in (25, 30)  # through the checkpoint, or by cutting off keys and values
    assert alone.reused_tokens == 0
    assert done.tokens == alone.tokens
    assert seen.logits == fresh.logits
    assert len(seen.logits) == 4
