"""The real Qwen3.5 vocabulary, that of Bonsai 27B and Bonsai 2, against ids that other engines published.

The fetched file holds tokens and ranks; the merge rules are found from them. 232 of the 247,788 tokens that
are no bytes have no rule that follows from the ranks, for 83 of which no two tokens join to one. GGUF files
of the model carry 31 rules more than are found here, so texts with such words could differ; none below do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.catalogue import published_file
from engine.chat import TEMPLATES, ChatOptions, Message, encode_chat
from engine.metadata import Metadata
from engine.swift import SwiftChatSession
from engine.tokenizer import Tokenizer
from tests.gguf_writer import GgufWriter
from tests.rank_file import read_ranks, rules_of, spelled
from tests.vocabularies import metadata_of

BASE = 248_044
ROWS = 248_320
MERGES = 247_556
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

# The added tokens by the published id of the first; tags of tools and thinking are visible text.
ADDED = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>",
    "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<|audio_start|>",
    "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>",
    "<|audio_pad|>",
]  # fmt: skip

QUESTION = "Explain in two sentences why the sky is blue."
GOLDEN = [248045, 846, 198, 814, 20139, 303, 1330, 22157, 3069, 279, 12515, 369, 6105, 13, 248046, 198]
HEADER = [248045, 74455, 198]
THINK, END_THINK = 248068, 248069


@pytest.fixture(scope="module")
def metadata(qwen35_ranks_path: Path) -> Metadata:
    """The keys as a GGUF file of the model has them, through the engine's parser."""
    tokens = read_ranks(qwen35_ranks_path)
    padding = [f"[PAD{token}]" for token in range(BASE + len(ADDED), ROWS)]
    types = [USER_DEFINED if spelling[1] != "|" else CONTROL for spelling in ADDED]
    merges = [f"{spelled(left)} {spelled(right)}" for left, right in rules_of(tokens)]
    return metadata_of(
        GgufWriter()
        .add("tokenizer.ggml.model", "string", "gpt2")
        .add("tokenizer.ggml.pre", "string", "qwen35")
        .add("tokenizer.ggml.tokens", "[string]", [*map(spelled, tokens), *ADDED, *padding])
        .add(
            "tokenizer.ggml.token_type",
            "[i32]",
            [NORMAL] * len(tokens) + types + [UNUSED] * len(padding),
        )
        .add("tokenizer.ggml.merges", "[string]", merges)
        .add("tokenizer.ggml.eos_token_id", "u32", 248046)
        .add("tokenizer.ggml.padding_token_id", "u32", 248044)
        .add("tokenizer.ggml.add_bos_token", "bool", False)
    )


@pytest.fixture(scope="module")
def qwen35(metadata: Metadata) -> Tokenizer:
    """The tokenizer of these keys."""
    return Tokenizer.from_metadata(metadata)


def test_the_published_sizes(metadata: Metadata, qwen35: Tokenizer) -> None:
    """Base tokens, added ones and rows are as published, and the rules begin as the published ones do."""
    merges = metadata.strings("tokenizer.ggml.merges")
    assert len(merges) == MERGES
    assert merges[:4] == ["Ġ Ġ", "ĠĠ ĠĠ", "i n", "Ġ t"]
    assert qwen35.vocabulary.size == ROWS
    assert qwen35.vocabulary.unused == frozenset(range(BASE + 33, ROWS))


def test_golden_prompt(qwen35: Tokenizer) -> None:
    """A user's turn and the assistant's header are the 19 published ids, parsed or through the renderer."""
    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    assert len(GOLDEN + HEADER) == 19
    assert qwen35.encode(prompt, "parse") == GOLDEN + HEADER
    chat = TEMPLATES["qwen3"].render([Message("user", QUESTION)], ChatOptions())
    encoded = encode_chat(qwen35, chat)
    assert chat.flatten() == prompt
    assert encoded.tokens == GOLDEN + HEADER
    assert encoded.stable_prefix == len(GOLDEN)
    assert encoded.turn_ends == (248046, 248044)


def test_own_format(qwen35: Tokenizer) -> None:
    """The model's own format opens the block that the published answer begins with, or closes it."""
    for thinking, block in ((True, [THINK, 198]), (False, [THINK, 271, END_THINK, 271])):
        options = ChatOptions(enable_thinking=thinking)
        chat = TEMPLATES["qwen3.5"].render([Message("user", QUESTION)], options)
        assert encode_chat(qwen35, chat).tokens == [*GOLDEN, *HEADER, *block]


def test_conversations_of_the_swift_model(qwen35: Tokenizer) -> None:
    """By its catalogue entry the published question follows the effort's sentence, and thinking is opened."""
    digest = "c3cf9e34abf4f9e36c2d72165aa9c132d3e2a725b6c2586aaa3a8af9d7a81041"
    conversation = published_file("Swift-Bonsai-2-PQ2_0").conversation
    chat = SwiftChatSession(qwen35, TEMPLATES["qwen3.8"], digest, conversation, 8192)
    prepared = chat.prepare([Message("user", QUESTION)], 100)
    ids = list(prepared.tokens)
    assert ids[-21:] == [*GOLDEN, *HEADER, THINK, 198]
    system = qwen35.vocabulary.decode(ids[:-21]).decode()
    assert system.startswith("<|im_start|>system\nReasoning effort is set to xhigh. Please think carefully")
    assert system.endswith("clarity in the final answer.<|im_end|>\n")
    assert chat.count([Message("user", QUESTION)], 100) == len(ids)
    assert set(chat.stop_tokens) == {248044, 248046, 248063, 248064, 248065}
    assert chat.starts_inside_think


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
            [248045, 846, 198, 9419, 248046, 198, 248045, 74455, 198, 248068, 271, 248069, 271],
        ),
        ("<|endoftext|><|im_start|>assistant\n<|im_end|>", [248044, 248045, 74455, 198, 248046]),
        (
            "Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ",
            [9419, 0, 220, 97169, 97621, 6115, 16, 478, 220, 16, 283, 220, 17,
             9551, 254, 68933, 128, 97, 91914, 28495, 68933, 128, 105, 68933, 128, 95],
        ),
    ],
    ids=["turn", "controls", "the package's own example"],
)  # fmt: skip
def test_published_encodings(qwen35: Tokenizer, text: str, ids: list[int]) -> None:
    """Texts with published ids encode to them and decode back."""
    assert qwen35.encode(text, "parse") == ids
    assert qwen35.vocabulary.decode(ids).decode() == text


def test_published_answer(qwen35: Tokenizer) -> None:
    """The first ids of the published answer are readable text, and encode to themselves."""
    ids = [THINK, 198, 760, 1156, 6587, 264, 1330, 1284, 17834, 15673, 314, 3069, 279, 12515, 369, 6105]
    text = qwen35.vocabulary.decode(ids).decode()
    assert text.endswith("explanation of why the sky is blue")
    assert qwen35.encode(text, "parse") == ids


def test_special_ids(qwen35: Tokenizer) -> None:
    """Added tokens have their published ids, stop what they should, and are not found in plain text."""
    published = {
        "<|endoftext|>": 248044, "<|im_start|>": 248045, "<|im_end|>": 248046, "<|vision_start|>": 248053,
        "<|vision_end|>": 248054, "<|image_pad|>": 248056, "<|video_pad|>": 248057, "<tool_call>": 248058,
        "</tool_call>": 248059, "<|fim_pad|>": 248063, "<tool_response>": 248066, "<think>": 248068,
        "</tool_response>": 248067, "</think>": 248069, "<|audio_pad|>": 248076,
    }  # fmt: skip
    for spelling, token in published.items():
        assert qwen35.encode(spelling, "parse") == [qwen35.control_id(spelling)] == [token]
        assert max(qwen35.encode(spelling)) < BASE
        assert qwen35.vocabulary.is_control(token) == spelling.startswith("<|")
    assert qwen35.special.generation(1) == (248046,)
    assert qwen35.special.add_bos is False


def test_every_token_decodes_and_most_come_back(qwen35: Tokenizer, qwen35_ranks_path: Path) -> None:
    """A base token decodes to its bytes in the file; words of a sample encode to their one id again."""
    tokens = read_ranks(qwen35_ranks_path)
    assert all(qwen35.vocabulary.piece(token) == piece for token, piece in enumerate(tokens))
    words = [(token, piece) for token, piece in enumerate(tokens) if piece.isalpha() and token % 50 == 0]
    assert len(words) > 500
    assert [qwen35.encode(piece.decode()) for _, piece in words] == [[token] for token, _ in words]
