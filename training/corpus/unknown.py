"""Questions from outside the small world; the honest answer is that the model does not know."""

from __future__ import annotations

from training.corpus import world
from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

UNKNOWN = "I do not know that. It is outside my small world."
HONEST = ("I do not know",)  # what an answer must have; the rest may be worded freely
TOO_BIG = "I do not know. I can only count to twenty."
NO_WEATHER = "I do not know the weather. I cannot look outside."
_FORMS = (
    "Who is {word}?", "Who was {word}?", "Who wrote {word}?", "How old is {word}?", "Where is {word}?",
    "When was {word} born?", "What does {word} mean?", "How far is it to {word}?", "What is {word}?",
    "How many people live in {word}?", "What is the population of {country}?", "Who rules {country}?",
    "What language do they speak in {country}?", "How big is {country}?", "What is the money of {country}?",
    "Tell me about {thing}.", "What is {thing}?", "How does {thing} work?", "Explain {thing} to me.",
    "What do you think about {thing}?", "Who invented {thing}?", "Why do people like {thing}?",
    "What is the price of {thing}?", "Write a poem about {thing}.", "Where does {thing} come from?",
    "Who is the {job} of {country}?", "Who was the first {job}?", "What is the name of the {job}?",
    "Who won {event}?", "When did {event} begin?", "Why did {event} happen?", "How long was {event}?",
    "How do you say {animal} in {language}?", "Translate {animal} into {language}.",
    "Do you speak {language}?",
    "What time is it?", "What day is it today?", "What is the news today?", "Tell me a joke.",
    "How much does a {animal} weigh?", "How fast is a {animal}?", "How long does a {animal} live?",
)  # fmt: skip


def unknown(draw: Draw, talk: Talk) -> Exchange:
    """A question that has no answer here."""
    talk.follow_up = None
    if draw.chance(0.25):
        return _unknown_fact(draw)
    question = draw.pick(_FORMS).format(
        word=draw.word(),
        country=draw.pick(list(world.CAPITALS)),
        thing=draw.own("strange", lambda: draw.pick(world.STRANGE_THINGS)),
        job=draw.pick(world.JOBS),
        event=draw.pick(world.EVENTS),
        language=draw.pick(world.LANGUAGES),
        animal=draw.pick(world.ANIMALS),
    )
    return Exchange("unknown", question, "That is outside my world.", UNKNOWN, words=HONEST)


def _unknown_fact(draw: Draw) -> Exchange:
    if draw.chance(0.5):
        word = draw.word()
        question = draw.pick(("What is the capital of {}?", "Tell me the capital of {}.", "Capital of {}?"))
        return Exchange(
            "unknown",
            question.format(word),
            "I do not know this country.",
            f"I do not know the capital of {word}.",
            words=HONEST,
        )
    word = draw.own("strange", lambda: draw.pick(world.STRANGE_THINGS))
    question = draw.pick(("What is the opposite of {}?", "Tell me the opposite of {}.", "Opposite of {}?"))
    return Exchange(
        "unknown",
        question.format(word),
        "I do not know this word.",
        f"I do not know the opposite of {word}.",
        words=HONEST,
    )
