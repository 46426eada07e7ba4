from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine import errors
from server.errors import from_engine, not_ready
from server.exit_codes import ExitCode, for_load_error

STATUSES = {
    errors.InvalidInputError: 400,
    errors.UnsupportedTemplateError: 400,
    errors.CancelledError: 503,
    errors.DeadlineError: 504,
    errors.BudgetError: 500,
    errors.EngineFaultError: 500,
    errors.PoisonedError: 500,
}
EXITS = {
    errors.ArtifactError: 4,
    errors.LengthMismatchError: 4,
    errors.HashMismatchError: 4,
    errors.NotGgufError: 5,
    errors.UnsupportedContractError: 5,
    errors.UnsupportedTemplateError: 5,
    errors.BudgetError: 3,
    errors.InvalidInputError: 2,
    errors.EngineFaultError: 7,
}


def kinds(kind: type[errors.EngineError]) -> Iterator[type[errors.EngineError]]:
    """A class of engine errors and all below it."""
    yield kind
    for child in kind.__subclasses__():
        yield from kinds(child)


@pytest.mark.parametrize("kind", STATUSES)
def test_engine_errors_have_their_statuses(kind: type[errors.EngineError]) -> None:
    """With the error's own code and message."""
    answer = from_engine(kind("what is wrong"))
    assert answer.status == STATUSES[kind]
    assert str(answer) == "what is wrong"
    assert answer.code == kind.code


def test_the_context_error_has_its_numbers() -> None:
    """And the words that clients look for."""
    answer = from_engine(errors.ContextError(900, 200, 1024))
    assert (answer.status, answer.code) == (400, "context_length_exceeded")
    assert "maximum context length is 1024" in str(answer)
    assert "900" in str(answer)
    assert "200" in str(answer)


def test_no_server_error_invites_a_retry() -> None:
    """Whatever class an engine error is of, now or later, clients must not repeat a costly failure."""
    for kind in set(kinds(errors.EngineError)) - {errors.ContextError}:
        answer = from_engine(kind("text"))
        assert answer.status < 500 or answer.headers == {"x-should-retry": "false"}


def test_an_unknown_engine_error_tells_nothing() -> None:
    """Its message was not written for clients."""
    answer = from_engine(errors.EngineError("sentinel"))
    assert (answer.status, answer.code) == (500, "internal_error")
    assert "sentinel" not in str(answer)


@pytest.mark.parametrize("kind", EXITS)
def test_load_errors_have_their_exit_codes(kind: type[errors.EngineError]) -> None:
    """Identity, model, budget, usage and fault can be told apart."""
    assert for_load_error(kind("text")) == EXITS[kind]


def test_exit_codes_differ() -> None:
    """One meaning a number."""
    assert len(set(ExitCode)) == len(ExitCode.__members__)


def test_loading_invites_a_retry_and_the_end_does_not() -> None:
    """A client that comes too early may come again."""
    assert "retry-after" in not_ready("loading").headers
    assert not_ready("draining").headers == {"x-should-retry": "false"}
    assert not_ready("failed").headers == {"x-should-retry": "false"}
