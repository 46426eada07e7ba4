"""The questions of the evaluation, by task: conversations that training never had, up to the question.

Held out are operand pairs, ranges, story settings, made-up words and calculations (see `corpus.draw`). Facts
are all trained, so there it is the conversation around the question that is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from engine.chat import ChatOptions, Message
from training.corpus import acquaintance, facts, stories, sums, tools, unknown
from training.corpus.conversation import Offer, Topic, assemble, next_exchange
from training.corpus.draw import Draw, is_held_out
from training.corpus.exchange import Exchange, Talk
from training.tokens import FORMAT

Make = Callable[[Draw, bool], "Question"]  # with or without thinking


@dataclass(frozen=True)
class Question:
    """Messages up to the question, and what the answer after the thought must be.

    If `words` are given, an answer is right that has them all.
    """

    messages: list[Message]
    options: ChatOptions
    answer: str
    words: tuple[str, ...] = ()


def questions(count: int, thinking: bool) -> Iterator[tuple[str, list[Question]]]:
    """Every task with its questions: all held-out pairs twice, and `count` questions of any other task."""
    pairs = [pair for pair in sums.all_pairs() if is_held_out("pair", sums.key_of(pair))]
    yield (
        "sums and differences, pairs held out",
        [_of_pair(pair, n, thinking) for pair in pairs for n in (0, 2)],
    )
    for name, make in _TASKS.items():
        draws = (Draw(f"evaluation:{name}:{thinking}:{n}", held_out=True) for n in range(count))
        yield name, [make(draw, thinking) for draw in draws]


def _of_pair(pair: sums.Pair, before: int, thinking: bool) -> Question:
    draw = Draw(f"evaluation:{pair}:{before}:{thinking}", held_out=True)
    return _ask(draw, thinking, lambda draw, talk: sums.ask(draw, talk, pair), before)


def _ask(draw: Draw, thinking: bool, topic: Topic, before: int | None = None) -> Question:
    """A question of a topic after some others, by default none to three."""
    talk = Talk()
    before = draw.pick((0, 0, 1, 3)) if before is None else before
    exchanges = [next_exchange(draw, talk) for _ in range(before)]
    return _question(draw, thinking, [*exchanges, topic(draw, talk)], ())


def _question(draw: Draw, thinking: bool, exchanges: list[Exchange], offered: Offer) -> Question:
    conversation = assemble(draw, exchanges, offered, thinking=thinking)
    last = conversation.last
    return Question(conversation.messages[:-1], conversation.options, last.answer, last.words)


def _about(topic: Topic) -> Make:
    return lambda draw, thinking: _ask(draw, thinking, topic)


def _name_after(others: int) -> Make:
    """The user's name after that many exchanges about something else."""

    def make(draw: Draw, thinking: bool) -> Question:
        talk = Talk()
        told = acquaintance.introduce(draw, talk)
        between = _others(draw, talk, others)
        return _question(draw, thinking, [told, *between, acquaintance.ask_name(draw, talk)], ())

    return make


def _others(draw: Draw, talk: Talk, count: int) -> list[Exchange]:
    """Exchanges that are not about the user's name."""
    exchanges: list[Exchange] = []
    while len(exchanges) < count:
        if not (exchange := next_exchange(draw, replace(talk))).kind.startswith("name"):
            exchanges.append(exchange)
    return exchanges


def _no_name(draw: Draw, thinking: bool) -> Question:
    """The user's name in a conversation in which none was told."""
    talk = Talk()
    exchanges = _others(draw, talk, draw.pick((0, 0, 1, 3)))
    while (asked := acquaintance.ask_name(draw, replace(talk))).kind != "name unknown":
        pass
    return _question(draw, thinking, [*exchanges, asked], ())


def _story_question(draw: Draw, thinking: bool) -> Question:
    talk = Talk()
    told = stories.story(draw, talk)
    assert talk.follow_up is not None
    return _question(draw, thinking, [told, talk.follow_up(draw, talk)], ())


def _tool_call(draw: Draw, thinking: bool) -> Question:
    """With both tools on offer, the first answer must be the call."""
    question = _tool_result(draw, thinking)
    *messages, called, _ = question.messages
    options = replace(question.options, add_generation_prompt=False)
    whole = FORMAT.render([*messages, called], options).flatten()
    answer = whole.rpartition("</think>\n\n")[2].removesuffix("<|im_end|>\n")
    return Question(messages, question.options, answer)


def _tool_result(draw: Draw, thinking: bool) -> Question:
    """Called rightly, the answer must have what the tool said."""
    talk = Talk(frozenset((tools.CALCULATOR, tools.WEATHER)))
    exchanges = [next_exchange(draw, talk) for _ in range(draw.pick((0, 0, 1, 3)))]
    topic = draw.pick((tools.calculate, tools.weather))
    while not (last := topic(draw, talk)).words:  # the tool failed
        pass
    return _question(draw, thinking, [*exchanges, last], tools.offer_both(draw))


def _tools_left_alone(draw: Draw, thinking: bool) -> Question:
    """With both tools on offer, a question that they are of no use for."""
    topic = draw.pick((facts.capital, facts.opposite, sums.count, unknown.unknown))
    talk = Talk(frozenset((tools.CALCULATOR, tools.WEATHER)))
    return _question(draw, thinking, [topic(draw, talk)], tools.offer_both(draw))


_TASKS: dict[str, Make] = {
    "sums and differences, pairs trained": lambda draw, thinking: _ask(
        Draw(f"{draw.number(0, 1 << 30)}"), thinking, sums.small_sum
    ),
    "capitals": _about(facts.capital),
    "opposites": _about(facts.opposite),
    "counting": _about(sums.count),
    "sounds, colours, days": _about(facts.small_fact),
    "name after three other exchanges": _name_after(3),
    "name after twelve other exchanges": _name_after(12),
    "no name was told": _no_name,
    "story: animal, name and place": _about(stories.story),
    "question about the story": _story_question,
    "not known": _about(unknown.unknown),
    "tool call": _tool_call,
    "tool result": _tool_result,
    "tools of no use": _tools_left_alone,
}
