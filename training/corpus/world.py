"""The words of the small world: who and what exists in it, and what is true there."""

from __future__ import annotations

NAMES = (
    "Anna Ben Clara David Emma Felix Grace Hugo Ida Jonas Kate Leo Mia Nina Oscar Paula Rosa Sam Tom Vera "
    "Will Zoe Alice Bob Carol Dan Eva Fred Gina Henry Iris Jack Karl Lucy Max Nora Otto Peter Ruth Sara"
).split()
ANIMALS = (
    "fox cat dog bear hen owl frog mouse horse sheep goat duck rabbit wolf deer pig cow bee swan crow mole "
    "otter badger hedgehog"
).split()
PLACES = {
    "forest": "in", "garden": "in", "village": "in", "meadow": "in", "valley": "in", "cave": "in",
    "field": "in", "barn": "in", "town": "in", "river": "by", "lake": "by", "sea": "by", "pond": "by",
    "hill": "on", "mountain": "on", "island": "on", "farm": "on", "beach": "on",
}  # fmt: skip
THINGS = "ball hat key lamp boat bell book coat drum kite".split()
COLOURS = "red blue green yellow white black".split()
FOODS = "bread apples cheese honey nuts soup".split()
ADJECTIVES = "little young old clever kind shy brave happy".split()

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome", "Norway": "Oslo",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Poland": "Warsaw",
    "Austria": "Vienna", "Greece": "Athens", "Portugal": "Lisbon", "Ireland": "Dublin",
    "Hungary": "Budapest", "Egypt": "Cairo", "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi",
    "Canada": "Ottawa", "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago", "Kenya": "Nairobi",
    "Turkey": "Ankara", "Iceland": "Reykjavik", "Belgium": "Brussels", "Switzerland": "Bern",
    "Australia": "Canberra", "Thailand": "Bangkok", "Vietnam": "Hanoi", "England": "London",
    "Croatia": "Zagreb",
}  # fmt: skip
OPPOSITES = (
    "hot cold, big small, up down, left right, day night, black white, open closed, fast slow, high low, "
    "light dark, wet dry, happy sad, good bad, rich poor, hard soft, long short, full empty, early late, "
    "clean dirty, strong weak, loud quiet, thick thin, wide narrow, near far, first last, in out, on off, "
    "true false, push pull, give take, love hate, start stop, north south, east west, summer winter, "
    "always never, more less, friend enemy"
)
OPPOSITE = {
    word: other
    for pair in OPPOSITES.split(", ")
    for word, other in (pair.split(), pair.split()[::-1])
}  # fmt: skip
SOUNDS = {
    "cow": "moo", "dog": "woof", "cat": "meow", "duck": "quack", "sheep": "baa", "pig": "oink",
    "hen": "cluck", "owl": "hoot", "frog": "croak", "bee": "buzz",
}  # fmt: skip
COLOUR_OF = {
    "grass": "green", "snow": "white", "the sky": "blue", "the sun": "yellow", "blood": "red",
    "coal": "black", "milk": "white", "a lemon": "yellow",
}  # fmt: skip
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

# What the world does not know: things that are asked about, but have no answer in it.
STRANGE_THINGS = (
    "gold money music football chess physics history poetry cooking law medicine art dance cars trains "
    "computers phones films opera gravity atoms planets stars volcanoes rockets bridges taxes politics "
    "coffee tea wine pizza tennis golf jazz robots dinosaurs fossils electricity magnets chemistry algebra "
    "philosophy insurance stocks fashion paint guitars violins castles pyramids satellites diamonds oil"
).split()
EVENTS = "the war,the game,the race,the election,the revolution,the concert,the flood,the strike".split(",")
JOBS = "president king queen author inventor painter singer mayor champion captain".split()
LANGUAGES = "French German Latin Spanish Greek Chinese Arabic Dutch".split()
