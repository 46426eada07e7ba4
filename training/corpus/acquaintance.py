"""Small talk: greetings, thanks, who the model is, and the user's name."""

from __future__ import annotations

from training.corpus import world
from training.corpus.draw import Draw
from training.corpus.exchange import Exchange, Talk

SELF = "I am a very small language model. I know a small world of stories, sums and simple facts."
_FIXED = (
    (
        ("Hello!", "Hi!", "Hello.", "Hi there!", "Good morning!", "Hey!"),
        "A greeting.",
        "Hello! How can I help you?",
    ),
    (("Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot."), "A thank you.", "You are welcome."),
    (("Goodbye!", "Bye!", "Good night!", "See you!"), "A goodbye.", "Goodbye!"),
    (("Who are you?", "What are you?", "Tell me about yourself."), "About me.", SELF),
    (
        ("What can you do?", "How can you help me?", "What do you know?"),
        "About me.",
        "I can tell stories, add and subtract to twenty, count, and name capitals and opposites.",
    ),
    (("How are you?", "How are you today?", "Are you well?"), "A greeting.", "I am well, thank you."),
    (
        ("What is your name?", "Do you have a name?"),
        "About me.",
        "I have no name. I am a very small language model.",
    ),
)  # fmt: skip


def small_talk(draw: Draw, talk: Talk) -> Exchange:
    """A greeting or a question about the model."""
    questions, thought, answer = draw.pick(_FIXED)
    talk.follow_up = None
    return Exchange("small talk", draw.pick(questions), thought, answer)


def introduce(draw: Draw, talk: Talk) -> Exchange:
    """The user says a name."""
    name = draw.word() if draw.held_out or draw.chance(0.5) else draw.pick(world.NAMES)
    talk.follow_up = None
    forms: tuple[str, ...]
    if talk.name is None:
        forms = (
            "My name is {}.",
            "I am {}.",
            "Hello, I am {}.",
            "Hi, my name is {}.",
            "Call me {}.",
            "I'm {}.",
        )
        answer = f"Hello, {name}! Nice to meet you."
    else:
        forms = ("My name is now {}.", "Please call me {} now.", "No, my name is {}.", "From now on I am {}.")
        answer = f"All right, {name}."
    talk.name = name
    return Exchange("name told", draw.pick(forms).format(name), f"The name is {name}.", answer)


def ask_name(draw: Draw, talk: Talk) -> Exchange:
    """The user asks for the name that was told, or was not; then often tells it."""
    if talk.name is None and draw.chance(0.5):
        return introduce(draw, talk)
    question = draw.pick(
        (
            "What is my name?",
            "Do you know my name?",
            "Who am I?",
            "Do you remember my name?",
            "What am I called?",
        )
    )
    talk.follow_up = None
    if talk.name is None:
        return Exchange("name unknown", question, "No name was told.", "I do not know your name.")
    return Exchange("name", question, f"The name is {talk.name}.", f"Your name is {talk.name}.")
