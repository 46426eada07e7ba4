from __future__ import annotations

import re
from hashlib import sha256

import pytest

from training.corpus.conversation import Conversation, converse
from training.corpus.draw import Draw
from training.corpus.world import CAPITALS, OPPOSITE
from training.questions import questions
from training.tokens import text_of

CONVERSATIONS = [converse(Draw(f"test:{n}")) for n in range(600)]
HELD_OUT = [converse(Draw(f"test:{n}", held_out=True)) for n in range(300)]


def sums(conversations: list[Conversation]) -> set[tuple[int, str, int]]:
    """The sums and differences worked out without a tool; each must be right."""
    found = set()
    for conversation in conversations:
        if not conversation.options.tools:
            for a, sign, b, result in re.findall(r"(\d+) ([+-]) (\d+) = (\d+)\.", text_of(conversation)):
                assert int(result) == (int(a) + int(b) if sign == "+" else int(a) - int(b))
                found.add((int(a), sign, int(b)))
    return found


def test_sums_are_right_and_stay_on_their_side() -> None:
    """No pair of the evaluation, nor its mirror image, is in training; both stay within twenty."""
    trained, held_out = sums(CONVERSATIONS), sums(HELD_OUT)
    assert len(trained) > 200
    assert len(held_out) > 40
    for a, sign, b in held_out:
        assert 0 <= (a + b if sign == "+" else a - b) <= 20
        assert (a, sign, b) not in trained
        assert sign == "-" or (b, sign, a) not in trained


def test_evaluation_asks_only_held_out_pairs() -> None:
    """Every pair that the evaluation asks for is one that training lacks, and about an eighth of all are."""
    name, asked = next(iter(questions(1, thinking=True)))
    assert name == "sums and differences, pairs held out"
    pairs = {tuple(question.answer.split(" = ")[0].split()) for question in asked}
    assert 40 <= len(pairs) <= 70
    assert not pairs & {(str(a), sign, str(b)) for a, sign, b in sums(CONVERSATIONS)}


def test_thoughts_count_to_the_result() -> None:
    """The thought before a sum counts its steps one by one, from the first number to the result."""
    thoughts = re.findall(
        r"From (\d+) go (up|down) (\d+): (.*)\. So (\d+)\.", "\n".join(map(text_of, CONVERSATIONS))
    )
    assert len(thoughts) > 30
    for first, way, count, steps, result in thoughts:
        step = 1 if way == "up" else -1
        expected = [f"{n}:{int(first) + n * step}" for n in range(1, int(count) + 1)]
        assert steps.split() == (expected or ["none"])
        assert int(result) == int(first) + int(count) * step


def test_facts() -> None:
    """Whatever is said of capitals and opposites is one fact of the world, never two."""
    text = "\n".join(map(text_of, CONVERSATIONS))
    capitals = set(re.findall(r"The capital of ([\w ]+) is ([\w ]+)\.", text))
    assert len(capitals) == len({country for country, _ in capitals}) > 25
    assert ("France", "Paris") in capitals
    assert capitals <= set(CAPITALS.items())
    opposites = re.findall(r"The opposite of (\w+) is (\w+)\.", text)
    assert len(opposites) > 50
    assert all(OPPOSITE[other] == word for word, other in opposites)


def test_names_are_remembered() -> None:
    """The name in an answer is the last one that the user gave; without one, none is made up."""
    told = re.compile(r"(?:[Mm]y name is(?: now)?|I am|I'm|[Cc]all me|no I am) ([A-Z]\w+)")
    asked = 0
    for conversation in (*CONVERSATIONS, *HELD_OUT):
        name = None
        for message in conversation.messages:
            if message.role == "user" and (match := told.search(message.content)):
                name = match[1]
            if message.role == "assistant" and (match := re.match(r"Your name is (\w+)", message.content)):
                assert match[1] == name
                asked += 1
            if message.content == "I do not know your name.":
                assert name is None
                asked += 1
    assert asked > 60


def test_tools_are_called_only_where_they_are_offered() -> None:
    """Each call is of a tool on offer, and its result is what the answer says."""
    calls = 0
    for conversation in CONVERSATIONS:
        offered = {tool["function"]["name"] for tool in conversation.options.tools}  # type: ignore[index]
        for index, message in enumerate(conversation.messages):
            for call in message.tool_calls:
                result, answer = conversation.messages[index + 1 : index + 3]
                assert call.name in offered
                assert (result.role, answer.role) == ("tool", "assistant")
                said = set(re.findall(r"-?\d+", answer.content.split(" = ")[-1]))
                assert said <= set(re.findall(r"-?\d+", result.content))
                calls += 1
    assert calls > 100


@pytest.mark.parametrize("held_out", [False, True])
def test_seeds(held_out: bool) -> None:
    """A seed is one conversation."""
    texts = [text_of(converse(Draw("again", held_out=held_out))) for _ in range(2)]
    assert texts[0] == texts[1] != text_of(converse(Draw("other", held_out=held_out)))


def test_the_corpus_is_the_one_that_was_trained_on() -> None:
    """The shipped model was made from these conversations; changing the grammar asks for a new model."""
    digest = sha256("".join(map(text_of, CONVERSATIONS[:200])).encode()).hexdigest()
    assert digest == "0838c2b0bd80d1391ff576b712ee10b248a40cfabb6135ebb0640c42f2406225"
