"""Sums and differences to twenty, worked out by counting, and counting itself.

The thought counts the steps from the first number: a rule that holds for pairs never seen.
"""

from __future__ import annotations

from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

LIMIT = 20
_SUM = (
    "What is {a} + {b}?", "{a} + {b} = ?", "How much is {a} + {b}?", "What is {a} plus {b}?",
    "How much is {a} plus {b}?", "Add {a} and {b}.", "Please add {b} to {a}.", "{a} plus {b}?",
)  # fmt: skip
_DIFFERENCE = (
    "What is {a} - {b}?", "{a} - {b} = ?", "How much is {a} - {b}?", "What is {a} minus {b}?",
    "How much is {a} minus {b}?", "Take {b} from {a}.", "Please subtract {b} from {a}.", "{a} minus {b}?",
)  # fmt: skip


Pair = tuple[int, str, int]


def small_sum(draw: Draw, talk: Talk) -> Exchange:
    """A sum or difference of numbers, and of a result, from 0 to 20."""
    return ask(draw, talk, draw.own("pair", lambda: _pair(draw), key_of))


def ask(draw: Draw, talk: Talk, pair: Pair) -> Exchange:
    """A question for the sum or difference of a pair."""
    a, sign, b = pair
    question = draw.pick(_SUM if sign == "+" else _DIFFERENCE).format(a=a, b=b)
    if talk.follow_up is small_sum and draw.chance(0.3):
        question = f"And {a} {sign} {b}?"
    talk.follow_up = small_sum
    result = a + b if sign == "+" else a - b
    return Exchange("sum", question, _count_on(a, sign, b), f"{a} {sign} {b} = {result}.")


def all_pairs() -> list[Pair]:
    """Every pair of the small world."""
    numbers = range(LIMIT + 1)
    sums: list[Pair] = [(a, "+", b) for a in numbers for b in numbers if a + b <= LIMIT]
    return sums + [(a, "-", b) for a in numbers for b in numbers if b <= a]


def key_of(pair: Pair) -> str:
    """What decides whether a pair is held out; a sum and its mirror image are so together."""
    a, sign, b = pair
    return f"{min(a, b)}+{max(a, b)}" if sign == "+" else f"{a}-{b}"


def _pair(draw: Draw) -> Pair:
    total = max(draw.number(0, LIMIT), draw.number(0, LIMIT))
    part = draw.number(0, total)
    return (part, "+", total - part) if draw.chance(0.5) else (total, "-", part)


def _count_on(a: int, sign: str, b: int) -> str:
    step = 1 if sign == "+" else -1
    steps = " ".join(f"{n}:{a + step * n}" for n in range(1, b + 1)) or "none"
    return f"From {a} go {'up' if step > 0 else 'down'} {b}: {steps}. So {a + step * b}."


def count(draw: Draw, talk: Talk) -> Exchange:
    """Counting up or down between two numbers to twenty."""
    first, last = draw.own("count", lambda: _ends(draw))
    up = first < last
    forms = ("Count from {a} to {b}.", "Please count from {a} to {b}.", "Can you count from {a} to {b}?")
    down = ("Count down from {a} to {b}.", "Count from {a} down to {b}.")
    talk.follow_up = None
    return Exchange(
        "count",
        draw.pick(forms if up else down).format(a=first, b=last),
        f"I count {'up' if up else 'down'} from {first} to {last}.",
        ", ".join(str(n) for n in range(first, last + (1 if up else -1), 1 if up else -1)) + ".",
    )


def _ends(draw: Draw) -> tuple[int, int]:
    first, last = draw.random.sample(range(LIMIT + 1), 2)
    return first, last


def neighbour(draw: Draw, talk: Talk) -> Exchange:
    """The number after or before another."""
    after = draw.chance(0.5)
    n = draw.number(0, LIMIT - 1) if after else draw.number(1, LIMIT)
    word, other = ("after", n + 1) if after else ("before", n - 1)
    talk.follow_up = None
    question = draw.pick((f"What number comes {word} {n}?", f"Which number is {word} {n}?"))
    return Exchange("count", question, "I count one step.", f"The number {word} {n} is {other}.")
