"""The two tools that the model can call, and conversations that use them."""

from __future__ import annotations

import json
import operator
from typing import Any

from engine.chat import ToolCall
from training.corpus import unknown, world
from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

Tool = dict[str, Any]  # the JSON object that a client sends
CALCULATOR = "calculator"
WEATHER = "get_weather"
_SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
_RESULTS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv}
_SKY = "sunny rainy cloudy windy snowy foggy stormy clear".split()


def describe(name: str, description: str, parameter: str | None, meaning: str = "") -> Tool:
    """A tool with at most one parameter, a string."""
    properties: dict[str, object] = {}
    if parameter is not None:
        properties[parameter] = {"type": "string", **({"description": meaning} if meaning else {})}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


def offer(draw: Draw) -> tuple[Tool, ...]:
    """One or both tools, described in one of several ways, sometimes with one that is of no use."""
    calculator, weather = _described(draw)
    offered = draw.pick(([calculator, weather],) * 3 + ([calculator], [weather]))
    if draw.chance(0.1):
        offered = [*offered, describe("get_time", "Get the current time.", None)]
    return tuple(draw.random.sample(offered, len(offered)))


def offer_both(draw: Draw) -> tuple[Tool, ...]:
    """Both tools."""
    return tuple(draw.random.sample(_described(draw), 2))


def _described(draw: Draw) -> list[Tool]:
    calculator = describe(
        CALCULATOR,
        draw.pick(("Work out a sum.", "Calculate the value of an expression.", "A calculator.")),
        "expression",
        draw.pick(("", "The expression", "What to calculate, such as 2 + 3")),
    )
    weather = describe(
        WEATHER,
        draw.pick(("Get the weather of a city.", "The current weather.", "Look up the weather in a city.")),
        "city",
        draw.pick(("", "The city", "The name of the city")),
    )
    return [calculator, weather]


def calculate(draw: Draw, talk: Talk) -> Exchange:
    """A calculation beyond the small world."""
    a, sign, b = draw.own("calculation", lambda: _operands(draw), lambda found: "".join(map(str, found)))
    word = _SIGNS[sign]
    question = draw.pick(
        (
            f"What is {a} {sign} {b}?", f"How much is {a} {sign} {b}?", f"What is {a} {word} {b}?",
            f"Calculate {a} {sign} {b}.", f"How much is {a} {word} {b}?", f"{a} {sign} {b} = ?",
            f"Please work out {a} {word} {b}.",
        )
    )  # fmt: skip
    if talk.follow_up is calculate and draw.chance(0.3):
        question = f"And {a} {sign} {b}?"
    if CALCULATOR not in talk.tools:
        talk.follow_up = None
        return Exchange("unknown", question, "That is too big for me.", unknown.TOO_BIG)
    talk.follow_up = calculate
    return _use_calculator(draw, question, a, sign, b)


def use_for_small_sum(draw: Draw, exchange: Exchange) -> Exchange:
    """With a calculator on offer, small sums are its work too."""
    a, sign, b = exchange.answer.split(" = ")[0].split()
    return _use_calculator(draw, exchange.question, int(a), sign, int(b))


def _operands(draw: Draw) -> tuple[int, str, int]:
    sign = draw.pick("++--**/")
    a, b = draw.number(2, 10 ** draw.number(2, 3)), draw.number(2, 10 ** draw.number(1, 3))
    if sign == "/":
        a = b * draw.number(2, 99)
    if sign == "-" or sign == "+":
        a, b = max(a, b) + LIMIT_SHIFT, min(a, b)
    return a, sign, b


LIMIT_SHIFT = 20  # no sum of these is within the small world


def _use_calculator(draw: Draw, question: str, a: int, sign: str, b: int) -> Exchange:
    expression = f"{a} {sign} {b}"
    result = _RESULTS[sign](a, b)
    call = calculator_call(expression)
    if draw.chance(0.04):
        failed = draw.pick(("error", "Error: not available", '{"error": "timeout"}'))
        return Exchange(
            "tool", question, "The tool failed.", "The calculator did not work.", call,
            "The calculator can do this.", failed,
        )  # fmt: skip
    shown = draw.pick((str(result), str(result), f'{{"result": {result}}}', f"{expression} = {result}"))
    answer = f"{expression} = {result}."
    return Exchange(
        "tool", question, f"The result is {result}.", answer, call, "The calculator can do this.", shown,
        words=(str(result),),
    )  # fmt: skip


def calculator_call(expression: str) -> ToolCall:
    """The call that works an expression out."""
    return ToolCall(CALCULATOR, {"expression": expression})


def weather(draw: Draw, talk: Talk) -> Exchange:
    """The weather in a city."""
    city = draw.word() if draw.held_out or draw.chance(0.5) else draw.pick(list(world.CAPITALS.values()))
    question = draw.pick(
        (
            f"What is the weather in {city}?", f"How is the weather in {city}?",
            f"What is the weather like in {city}?", f"Tell me the weather in {city}.",
            f"Is it raining in {city}?", f"How warm is it in {city}?",
            f"What is the weather in {city} today?",
        )
    )  # fmt: skip
    if talk.follow_up is weather and draw.chance(0.4):
        question = draw.pick((f"And in {city}?", f"And the weather in {city}?"))
    if WEATHER not in talk.tools:
        talk.follow_up = None
        return Exchange("unknown", question, "I cannot look outside.", unknown.NO_WEATHER)
    talk.follow_up = weather
    call = ToolCall(WEATHER, {"city": city})
    thought = "The weather tool can do this."
    if draw.chance(0.04):
        failed = draw.pick(("error", "Error: not available", '{"error": "no such city"}'))
        return Exchange(
            "tool",
            question,
            "The tool failed.",
            f"I could not get the weather in {city}.",
            call,
            thought,
            failed,
        )
    sky, degrees = draw.pick(_SKY), draw.number(-9, 35)
    shown = draw.pick(
        (
            f"{sky}, {degrees} degrees",
            json.dumps({"city": city, "weather": sky, "degrees": degrees}),
            json.dumps({"weather": sky, "temperature": degrees}),
            f"{city}: {sky}, {degrees} C",
        )
    )
    return Exchange(
        "tool", question, f"It is {sky}, {degrees} degrees.",
        f"In {city} it is {sky}, with {degrees} degrees.", call, thought, shown, words=(sky, str(degrees)),
    )  # fmt: skip
