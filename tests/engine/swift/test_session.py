from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from engine.catalogue import Conversation
from engine.chat import Message
from engine.errors import (
    BudgetError,
    CancelledError,
    DeadlineError,
    InvalidInputError,
    MetadataError,
    UnsupportedTemplateError,
)
from engine.runtime import Cancellation, GenerationOptions, Runtime
from engine.sampling import SwiftSampler
from engine.swift import SwiftCompletion, SwiftSession
from tests.engine.swift.models import STORY, stories, write_endless
from tests.models import pin_of

STOPS = (1021, 1019)


class Abandoned(Exception):  # noqa: N818 - not an error of anybody
    """What a consumer raises."""


def tell(session: SwiftSession, messages: list[Message] = STORY, tokens: int = 60) -> SwiftCompletion:
    """An answer without haste."""
    return session.generate(session.chat.prepare(messages, tokens), deadline=math.inf)


def by_hand(seed: int, *conversations: list[Message], tokens: int = 60) -> list[str]:
    """The texts that one sampler draws for these conversations when every one begins from nothing."""
    session = stories()
    model, sampler = session.model, SwiftSampler(seed, 1024)
    texts = []
    for messages in conversations:
        runtime = Runtime(model.decoder, checkpoint_bytes=1 << 28)
        prompt = session.chat.prepare(messages, tokens).tokens
        done = runtime.generate_sampled_until(prompt, GenerationOptions(tokens, STOPS), math.inf, sampler)
        texts.append(model.tokenizer.vocabulary.decode(done.tokens).decode())
    return texts


def test_answers_are_those_of_one_sampler() -> None:
    """Reused state changes no draw: three turns, of which two reuse, are as if each began from nothing."""
    session = stories(seed=11)
    first = tell(session)
    longer = [*STORY, Message("assistant", first.text), Message("user", "Hello!")]
    answers = [first, tell(session, longer), tell(session, STORY)]
    assert [answer.text for answer in answers] == by_hand(11, STORY, longer, STORY)
    assert first.cached_tokens == 0
    assert answers[1].cached_tokens > 0
    assert [answer.prompt_tokens for answer in answers] == [22, session.chat.count(longer, 1), 22]


def test_text_comes_in_pieces_and_whole() -> None:
    """The pieces and the rest join to the completion's text; its length in tokens is counted."""
    session = stories()
    pieces: list[str] = []
    prepared = session.chat.prepare(STORY, 10)
    done = session.generate(prepared, deadline=math.inf, on_text=pieces.append)
    assert "".join(pieces) + done.rest == done.text
    assert (len(pieces), done.output_tokens, done.finish) == (10, 10, "length")
    assert tell(stories(), tokens=100).finish == "stop"


def test_reset_is_the_start() -> None:
    """After a reset the first answer comes again, and nothing is cached; without one the draws go on."""
    session = stories()
    first, second = tell(session), tell(session)
    session.reset()
    assert (tell(session), first.cached_tokens) == (first, 0)
    assert second.text != first.text
    assert tell(session).text == second.text
    assert tell(stories(seed=8)).text != first.text


@pytest.mark.parametrize("failure", ["deadline", "cancelled", "consumer"])
def test_a_failed_answer_leaves_no_trace(failure: str) -> None:
    """Whatever ends an answer early, the next one is as if it had never been asked for."""
    session, spared = stories(), stories()
    tell(session)
    tell(spared)
    prepared = session.chat.prepare([*STORY, Message("user", "Hello!")], 60)
    cancellation = Cancellation()
    pieces: list[str] = []

    def consume(text: str) -> None:
        pieces.append(text)
        if len(pieces) == 5 and failure == "cancelled":
            cancellation.cancel()
        if len(pieces) == 5 and failure == "consumer":
            raise Abandoned

    deadline = time.monotonic() if failure == "deadline" else math.inf
    expected = {"deadline": DeadlineError, "cancelled": CancelledError, "consumer": Abandoned}[failure]
    with pytest.raises(expected):
        session.generate(prepared, deadline=deadline, cancellation=cancellation, on_text=consume)
    assert len(pieces) == (0 if failure == "deadline" else 5)
    assert tell(session) == tell(spared)


def test_a_bound_on_the_text() -> None:
    """An answer ends before the character that would exceed its bytes, as one of full length does."""
    whole = tell(stories()).text
    session = stories(output_bytes=43)
    done = tell(session)
    assert (done.finish, done.rest) == ("length", "")
    assert whole.startswith(done.text)
    assert 30 <= len(done.text) <= 40  # three bytes are kept for an unfinished character
    assert done.output_tokens < 60


def test_unfinished_characters(tmp_path: Path) -> None:
    """Bytes of any kind become the text that decoding them at once gives, wherever the answer ends."""
    pin = pin_of(write_endless(tmp_path / "endless.gguf"))
    session = SwiftSession.load(pin, Conversation("chatml", context=512), 3, threads=1)
    model, rests = session.model, set()
    for count in range(1, 25):
        session.reset()
        prepared = session.chat.prepare([Message("user", "Hello")], count)
        done = session.generate(prepared, deadline=math.inf)
        runtime = Runtime(model.decoder, checkpoint_bytes=1 << 28)
        tokens = runtime.generate_sampled_until(
            prepared.tokens, GenerationOptions(count, ()), math.inf, SwiftSampler(3, 271)
        ).tokens
        assert done.text == model.tokenizer.vocabulary.decode(tokens).decode("utf-8", "replace")
        assert done.text.endswith(done.rest)
        rests.add(done.rest)
    assert rests == {"", "\ufffd"}


def test_what_a_session_refuses() -> None:
    """A prompt of another session, the seed that stands for a random one, and another sampler."""
    session = stories()
    with pytest.raises(InvalidInputError, match="another session"):
        session.generate(stories().chat.prepare(STORY, 8), deadline=math.inf)
    with pytest.raises(InvalidInputError, match="seed 4294967295"):
        stories(seed=2**32 - 1)
    with pytest.raises(InvalidInputError, match="another sampler than swift"):
        stories(sampling="reference")
    with pytest.raises(UnsupportedTemplateError, match="no chat template, but"):
        stories(template_sha256="b" * 64)
    with pytest.raises(MetadataError, match="1024 tokens, but 248320"):
        stories(vocabulary_size=248_320)


@pytest.mark.parametrize("budget", ["model_bytes", "state_bytes", "checkpoint_bytes"])
def test_budgets(budget: str) -> None:
    """The conversation's budgets hold for model, state and checkpoints."""
    with pytest.raises(BudgetError):
        stories(**{budget: 1000})
