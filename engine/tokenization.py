"""A tokenizer that stays ready between requests, with one policy for text and one budget for every prompt.

A session comes from a verified file and keeps only what tokenizing needs; a request that is refused
leaves it as it was. It renders no templates and knows nothing of graphs, transports or processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, get_args

from engine.artifact import Pin, Progress
from engine.errors import ContextError, InvalidInputError
from engine.tokenizer import InsertSpecialPolicy, SpecialInputPolicy, Tokenizer
from engine.verified_metadata import read_metadata

MAX_TOKENIZATION_CONTEXT = 262_144


@dataclass(frozen=True)
class TokenBudget:
    """A context in tokens, of which some are kept free for output."""

    context: int
    reserved_output_tokens: int

    def __post_init__(self) -> None:
        if not 1 <= self.context <= MAX_TOKENIZATION_CONTEXT:
            raise InvalidInputError(
                f"the context is {self.context} tokens; 1 to {MAX_TOKENIZATION_CONTEXT} are allowed",
                "context",
            )
        if not 0 <= self.reserved_output_tokens < self.context:
            raise InvalidInputError(
                f"{self.reserved_output_tokens} tokens are reserved for output; "
                f"it must be 0 or more, and less than the context of {self.context}",
                "reserved_output_tokens",
            )

    @property
    def prompt_tokens(self) -> int:
        """The most tokens that a prompt may have; at least one."""
        return self.context - self.reserved_output_tokens

    def check(self, prompt_tokens: int) -> None:
        """Raises `ContextError` if so many tokens leave too little for the output."""
        if prompt_tokens > self.prompt_tokens:
            raise ContextError(prompt_tokens, self.reserved_output_tokens, self.context)


@dataclass(frozen=True)
class TextTokenizationPolicy:
    """How text becomes tokens, and how many there may be."""

    special_input: SpecialInputPolicy
    insert_special: InsertSpecialPolicy
    budget: TokenBudget

    def __post_init__(self) -> None:
        for field, allowed in (
            ("special_input", SpecialInputPolicy),
            ("insert_special", InsertSpecialPolicy),
        ):
            if getattr(self, field) not in get_args(allowed):
                words = " or ".join(get_args(allowed))
                raise InvalidInputError(f"the {field} policy must be {words}", field)


@dataclass(frozen=True)
class Encoded:
    """The exact ids of a prompt, and the context that they were checked against."""

    token_ids: tuple[int, ...]
    context: int
    reserved_output_tokens: int

    @property
    def prompt_token_count(self) -> int:
        """How many tokens of the context the prompt takes, inserted ones included."""
        return len(self.token_ids)


class TokenizationSession:
    """A verified file's tokenizer under a fixed policy. Threads may share it."""

    def __init__(self, tokenizer: Tokenizer, model_sha256: str, policy: TextTokenizationPolicy) -> None:
        self.model_sha256 = model_sha256
        self.policy = policy
        self._tokenizer = tokenizer

    @classmethod
    def load(
        cls, pin: Pin, metadata_bytes: int, policy: TextTokenizationPolicy, progress: Progress | None = None
    ) -> Self:
        """Verify the whole file and build its tokenizer; neither the file nor its metadata is kept.

        `metadata_bytes` bounds the part of the file that is held meanwhile. Raises `ArtifactError`s,
        `UnsupportedTokenizerError` among them also for sessions that would only be given ids, or
        `BudgetError`.
        """
        metadata = read_metadata(pin, metadata_bytes, progress)
        return cls(Tokenizer.from_metadata(metadata), pin.sha256, policy)

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens; ids are smaller."""
        return self._tokenizer.vocabulary.size

    def encode(self, text: str) -> Encoded:
        """The ids of a text, which may be empty. Raises `InvalidInputError` or `ContextError`."""
        ids = self._tokenizer.encode_with_special_tokens(
            text, self.policy.special_input, self.policy.insert_special
        )
        self.policy.budget.check(len(ids))
        return self._encoded(ids)

    def check_tokens(self, ids: Sequence[int]) -> Encoded:
        """A copy of exact ids, which may be none; nothing is parsed or inserted. Raises as `encode` does."""
        self.validate_tokens(ids)
        return self._encoded(ids)

    def validate_tokens(self, ids: Sequence[int]) -> int:
        """How many there are of ids that pass the checks of `check_tokens`; nothing is copied."""
        return validate_tokens(ids, self.vocabulary_size, self.policy.budget)

    def _encoded(self, ids: Sequence[int]) -> Encoded:
        budget = self.policy.budget
        return Encoded(tuple(ids), budget.context, budget.reserved_output_tokens)


def validate_tokens(ids: Sequence[int], vocabulary_size: int, budget: TokenBudget) -> int:
    """How many ids there are, if they fit the budget and each is in the vocabulary; nothing is copied.

    Raises `ContextError`, or an `InvalidInputError` that names the index of the first wrong id.
    """
    budget.check(len(ids))
    for index, token in enumerate(ids):
        if type(token) is not int or not 0 <= token < vocabulary_size:
            raise InvalidInputError(
                f"the token id at index {index} is outside the vocabulary of {vocabulary_size} tokens",
                "token_ids",
            )
    return len(ids)
