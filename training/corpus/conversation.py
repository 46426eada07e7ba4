"""Whole conversations: which topics follow one another, and the messages that they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.chat import ChatOptions, Message
from training.corpus import acquaintance, facts, stories, sums, tools, unknown
from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

Topic = Callable[[Draw, Talk], Exchange]
Offer = tuple[tools.Tool, ...]  # the tools of a conversation

_TOPICS: Mapping[Topic, float] = {
    sums.small_sum: 26,
    sums.count: 6,
    sums.neighbour: 3,
    facts.capital: 8,
    facts.opposite: 8,
    facts.small_fact: 5,
    acquaintance.small_talk: 5,
    acquaintance.introduce: 5,
    acquaintance.ask_name: 8,
    stories.story: 7,
    unknown.unknown: 9,
    tools.calculate: 2,
    tools.weather: 2,
}
# For conversations in which more is asked of what was said before.
_MEMORY_TOPICS: Mapping[Topic, float] = {
    **_TOPICS,
    acquaintance.introduce: 10,
    acquaintance.ask_name: 24,
    stories.story: 16,
}
_TOOL_TOPICS: Mapping[Topic, float] = {
    **{topic: weight / 4 for topic, weight in _TOPICS.items()},
    tools.calculate: 25,
    tools.weather: 25,
}
_SYSTEM = (
    "You are a helpful assistant.", "You are a small demo model.", "Answer briefly.", "Be kind.",
    "You are a friendly assistant. Answer in one sentence.", "Today is a fine day.",
)  # fmt: skip
_LENGTHS = (1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 6, 10)


@dataclass(frozen=True)
class Conversation:
    """Messages, the last one an answer, and the wishes they are rendered with; `last` made the end."""

    messages: list[Message]
    options: ChatOptions
    last: Exchange


_MEMORY_LENGTHS = (2, 3, 3, 4, 5, 6, 8, 12)


def converse(draw: Draw, *, memory: bool = False) -> Conversation:
    """A conversation of one to thirty exchanges, mostly few, with or without tools and thinking.

    With `memory`, it is longer, has no tools, and more of it is about what was said before.
    """
    if memory:
        talk = Talk()
        length = draw.pick(_MEMORY_LENGTHS)
        exchanges = [next_exchange(draw, talk, _MEMORY_TOPICS) for _ in range(length)]
        return assemble(draw, exchanges, (), thinking=draw.chance(0.5))
    offered = tools.offer(draw) if draw.chance(0.07) else ()
    names = frozenset(tool["function"]["name"] for tool in offered)
    talk = Talk(names)
    count = draw.number(15, 30) if draw.chance(0.02) else draw.pick(_LENGTHS)
    exchanges = [next_exchange(draw, talk) for _ in range(count + 3 if offered else count)]
    thinking = draw.chance(0.7 if exchanges[-1].kind == "sum" else 0.5)
    return assemble(draw, exchanges, offered, thinking=thinking)


def next_exchange(draw: Draw, talk: Talk, topics: Mapping[Topic, float] = _TOPICS) -> Exchange:
    """Any topic that fits; after a story, often a question about it."""
    after = talk.follow_up
    topics = _TOOL_TOPICS if talk.tools else topics
    if after is not None and draw.chance(0.35):
        topic = after
    else:
        topic = draw.random.choices(list(topics), list(topics.values()))[0]
    exchange = topic(draw, talk)
    if exchange.kind == "sum" and tools.CALCULATOR in talk.tools:
        return tools.use_for_small_sum(draw, exchange)
    return exchange


def assemble(draw: Draw, exchanges: list[Exchange], offered: Offer, *, thinking: bool) -> Conversation:
    """The messages of exchanges, after a system message in one of four conversations."""
    messages = [Message("system", draw.pick(_SYSTEM))] if draw.chance(0.25) else []
    for exchange in exchanges:
        hurried = draw.chance(0.08)
        messages.append(Message("user", exchange.question.rstrip("?.!") if hurried else exchange.question))
        if exchange.call is not None:
            thought = exchange.call_thought if thinking else ""
            messages.append(Message("assistant", "", thought, (exchange.call,)))
            messages.append(Message("tool", exchange.result))
        messages.append(Message("assistant", exchange.answer, exchange.thought if thinking else ""))
    return Conversation(messages, ChatOptions(enable_thinking=thinking, tools=offered), exchanges[-1])
