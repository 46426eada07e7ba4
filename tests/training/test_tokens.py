from __future__ import annotations

import pytest

from engine.chat import ChatOptions, Message, ToolCall
from training.corpus.conversation import Conversation
from training.corpus.exchange import Exchange
from training.tokenizer import make_tokenizer
from training.tokens import ANSWER, CONTEXT, SYSTEM, Encoder, text_of

ENCODER = Encoder(make_tokenizer(["a s", "as s", "i s", "Ċ Ċ"]))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
CALLED = [
    Message("system", "Be kind."),
    Message("user", "Hi"),
    Message("assistant", "Hello!", "dropped"),
    Message("user", "Two?"),
    Message("assistant", "", "A tool.", (ToolCall("f", {"x": "1"}),)),
    Message("tool", "2"),
    Message("assistant", "It is 2.", "Done."),
]
CALL = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call><|im_end|>"


def stretches(messages: list[Message], options: ChatOptions) -> list[tuple[float, str]]:
    """The text of a conversation, cut where the weight changes."""
    conversation = Conversation(messages, options, Exchange("", "", "", ""))
    sequence = ENCODER.encode(conversation)
    decode = ENCODER.tokenizer.vocabulary.decode
    assert decode(sequence.ids).decode() == text_of(conversation)
    found: list[tuple[float, str]] = []
    for token, weight in zip(sequence.ids, sequence.weights, strict=True):
        piece = decode([token]).decode()
        if found and found[-1][0] == weight:
            found[-1] = (weight, found[-1][1] + piece)
        else:
            found.append((weight, piece))
    return found


@pytest.mark.parametrize(
    ("thinking", "answers"),
    [
        (True, ["Hello!<|im_end|>", f"A tool.\n</think>\n\n{CALL}", "Done.\n</think>\n\nIt is 2.<|im_end|>"]),
        (False, ["Hello!<|im_end|>", CALL, "It is 2.<|im_end|>"]),
    ],
)
def test_what_the_model_generates_counts(thinking: bool, answers: list[str]) -> None:
    """Thoughts, calls and answers count fully, from just after what a prompt ends with."""
    messages = CALLED if thinking else [
        Message(each.role, each.content, None if each.role != "assistant" else "", each.tool_calls)
        for each in CALLED
    ]  # fmt: skip
    found = stretches(messages, ChatOptions(enable_thinking=thinking, tools=(TOOL,)))
    assert [text for weight, text in found if weight == ANSWER] == answers
    system = found[0]
    assert system[0] == SYSTEM
    assert system[1].endswith("Be kind.<|im_end|>")
    block = "<think>\n" if thinking else "<think>\n\n</think>\n\n"
    assert all(weight in (SYSTEM, CONTEXT, ANSWER) for weight, _ in found)
    assert "".join(text for _, text in found[: found.index((ANSWER, answers[1]))]).endswith(
        f"assistant\n{block}"
    )


def test_ids_are_those_of_a_served_prompt() -> None:
    """The whole conversation begins with the ids of the prompt that a server would make of its questions."""
    from engine.chat import encode_chat
    from training.tokens import FORMAT

    for thinking in (True, False):
        options = ChatOptions(enable_thinking=thinking)
        answer = Message("assistant", "This is it.", "As is." if thinking else "")
        whole = ENCODER.encode(
            Conversation([Message("user", "Is it?"), answer], options, Exchange("", "", "", ""))
        )
        prompt = encode_chat(ENCODER.tokenizer, FORMAT.render([Message("user", "Is it?")], options))
        assert whole.ids[: len(prompt.tokens)] == prompt.tokens
        assert (
            min(whole.weights[len(prompt.tokens) : -1]) == ANSWER > max(whole.weights[: len(prompt.tokens)])
        )
