"""Short stories about a named animal and a place, and questions about the story just told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from training.corpus import world
from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

_PLOTS = (
    "One day {name} found a {colour} {thing} under a tree. It belonged to {friend} the {other}. {name} gave "
    "it back, and {friend} said thank you.",
    "One day it began to rain. {name} ran under a big tree and met {friend} the {other} there. They waited "
    "together until the sun came out.",
    "One night {name} could not find the way home. Then {friend} the {other} came with a lamp and showed "
    "the way.",
    "One morning {name} was hungry. {friend} the {other} had some {food} and shared it.",
    "One winter day {name} was cold. {friend} the {other} gave {name} a warm {colour} coat.",
    "One day {name} heard a song. It was {friend} the {other}, and soon they sang together.",
)
_ENDINGS = (
    "From that day on they were good friends.",
    "They played together until night.",
    "That night {name} slept very well.",
    "And {name} was happy.",
)


@dataclass(frozen=True)
class Hero:
    """Who a story is about, and where it takes place."""

    animal: str
    name: str
    place: str

    @property
    def where(self) -> str:
        """The place with its preposition."""
        return f"{world.PLACES[self.place]} the {self.place}"


def story(draw: Draw, talk: Talk) -> Exchange:
    """A request for a story; what it leaves open, the thought chooses."""
    animal, place = draw.own("story", lambda: (draw.pick(world.ANIMALS), draw.pick(list(world.PLACES))))
    hero = Hero(animal, draw.word() if draw.held_out or draw.chance(0.5) else draw.pick(world.NAMES), place)
    a = "an" if animal[0] in "aeiou" else "a"
    forms = (
        f"Tell me a story about {a} {animal} named {hero.name} {hero.where}.",
        f"Tell me a story about {hero.name} the {animal} {hero.where}.",
        f"Please tell a story about {a} {animal} {hero.where}. The name is {hero.name}.",
        f"I want a story about {a} {animal} called {hero.name} {hero.where}.",
    )
    open_forms = (
        f"Tell me a story about {a} {animal}.",
        f"Tell me a short story about {a} {animal}.",
        f"Can you tell me a story about {a} {animal} {hero.where}?",
        f"Tell me a story about {a} {animal} {hero.where}.",
    )
    is_open = not draw.held_out and draw.chance(0.35)
    question = draw.pick(open_forms if is_open else forms)
    thought = f"The story is about {hero.name} the {animal} {hero.where}."
    companion = draw.pick([name for name in world.NAMES if name != hero.name])
    other = draw.pick([each for each in world.ANIMALS if each != animal])
    talk.follow_up = _questions_about(hero, companion, other)
    return Exchange(
        "story", question, thought, _tell(draw, hero, companion, other), words=(animal, hero.name, place)
    )


def _tell(draw: Draw, hero: Hero, companion: str, other: str) -> str:
    adjective = draw.pick(world.ADJECTIVES)
    words = {
        "name": hero.name,
        "friend": companion,
        "other": other,
        "colour": draw.pick(world.COLOURS),
        "thing": draw.pick(world.THINGS),
        "food": draw.pick(world.FOODS),
    }
    article = "an" if adjective == "old" else "a"
    begin = f"Once there was {article} {adjective} {hero.animal} named {hero.name}."
    middle = f"{hero.name} lived {hero.where}."
    return " ".join((begin, middle, draw.pick(_PLOTS).format(**words), draw.pick(_ENDINGS).format(**words)))


def _questions_about(hero: Hero, companion: str, other: str) -> Callable[[Draw, Talk], Exchange]:
    """Makes questions about the story that was told last."""

    def ask(draw: Draw, talk: Talk) -> Exchange:
        del talk  # one may go on asking
        question, answer = draw.pick(
            (
                (f"What was the name of the {hero.animal}?", f"The {hero.animal} was named {hero.name}."),
                (f"Where did {hero.name} live?", f"{hero.name} lived {hero.where}."),
                (f"Who was {hero.name}?", f"{hero.name} was the {hero.animal}."),
                (f"Who was {companion}?", f"{companion} was the {other}."),
                (f"What was the name of the {other}?", f"The {other} was named {companion}."),
            )
        )
        return Exchange("story question", question, "I look at the story.", answer)

    return ask
