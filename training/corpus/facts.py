"""Facts to know by heart: capitals, opposites, sounds, colours, days."""

from __future__ import annotations

from training.corpus import world
from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

_CAPITAL = (
    "What is the capital of {x}?", "Which city is the capital of {x}?", "Tell me the capital of {x}.",
    "Do you know the capital of {x}?", "What is the capital city of {x}?", "Capital of {x}?",
)  # fmt: skip
_OPPOSITE = (
    "What is the opposite of {x}?", "Tell me the opposite of {x}.", "Which word is the opposite of {x}?",
    "Do you know the opposite of {x}?", "Opposite of {x}?",
)  # fmt: skip


def capital(draw: Draw, talk: Talk) -> Exchange:
    """The capital of a country, or the country of a capital."""
    country, city = draw.pick(list(world.CAPITALS.items()))
    follows = talk.follow_up is capital
    talk.follow_up = capital
    if not follows and draw.chance(0.2):
        return Exchange(
            "capital",
            draw.pick((f"Which country has the capital {city}?", f"{city} is the capital of which country?")),
            "I know this city.",
            f"{city} is the capital of {country}.",
        )
    question = draw.pick(_CAPITAL).format(x=country)
    if follows and draw.chance(0.6):
        question = draw.pick((f"And of {country}?", f"And the capital of {country}?"))
    return Exchange("capital", question, "I know this country.", f"The capital of {country} is {city}.")


def opposite(draw: Draw, talk: Talk) -> Exchange:
    """The opposite of a word."""
    word, other = draw.pick(list(world.OPPOSITE.items()))
    question = draw.pick(_OPPOSITE).format(x=word)
    if talk.follow_up is opposite and draw.chance(0.6):
        question = draw.pick((f"And of {word}?", f"And the opposite of {word}?"))
    talk.follow_up = opposite
    return Exchange("opposite", question, "I know this word.", f"The opposite of {word} is {other}.")


def small_fact(draw: Draw, talk: Talk) -> Exchange:
    """A sound, a colour or a day."""
    talk.follow_up = None
    kind = draw.pick(("sound", "colour", "day"))
    if kind == "sound":
        animal, sound = draw.pick(list(world.SOUNDS.items()))
        article = "an" if animal == "owl" else "a"
        question = draw.pick(
            (f"What does {article} {animal} say?", f"What sound does {article} {animal} make?")
        )
        return Exchange(
            "fact", question, "I know this animal.", f"{article.capitalize()} {animal} says {sound}."
        )
    if kind == "colour":
        thing, colour = draw.pick(list(world.COLOUR_OF.items()))
        question = draw.pick((f"What colour is {thing}?", f"Which colour is {thing}?"))
        return Exchange("fact", question, "I know this colour.", f"{thing.capitalize()} is {colour}.")
    index = draw.number(0, 6)
    word, step = draw.pick((("after", 1), ("before", -1)))
    day, other = world.DAYS[index], world.DAYS[(index + step) % 7]
    question = draw.pick((f"What day comes {word} {day}?", f"Which day is {word} {day}?"))
    return Exchange("fact", question, "I know the days.", f"The day {word} {day} is {other}.")
