"""Generation as a transaction: a request commits state and sampler together, or leaves no trace of itself.

The runtime owns one decoder and one state. It reuses what the state already holds of a prompt, prefills
the rest in blocks, samples, emits and evaluates. Whatever goes wrong on the way (cancellation, deadline, a
fault, an exception of the consumer) sets state and sampler back to where they were.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.decoder import Decoder, Step
from engine.errors import (
    BudgetError,
    CancelledError,
    ContextError,
    DeadlineError,
    EngineFaultError,
    InvalidInputError,
    PoisonedError,
    SamplerLostError,
)
from engine.kernels.canon import Floats
from engine.sampling import GreedySampler, Sampler
from engine.state import Checkpoint, State

MAX_PREFILL_BLOCK = 256
MAX_STOP_TOKENS = 256

Finish = Literal["stop", "length"]
OnToken = Callable[[int], bool | None]
OnPrefill = Callable[[int, int], None]


class Cancellation:
    """A flag that any thread may raise; a running request notices it between two layers."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Raise the flag, for good."""
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether the flag is raised."""
        return self._event.is_set()


@dataclass(frozen=True)
class GenerationOptions:
    """What a request asks for.

    `stop_tokens` end the answer and are not part of it. `stable_prefix` is the number of prompt tokens
    that a later request is likely to share: a checkpoint is kept there if the budget allows it.
    """

    max_tokens: int
    stop_tokens: tuple[int, ...]
    prefill_block: int = 64
    stable_prefix: int = 0


@dataclass(frozen=True)
class Completion:
    """A committed request: the emitted tokens, why they ended, and where the time went."""

    tokens: tuple[int, ...]
    finish: Finish
    stop_token: int | None
    prompt_tokens: int
    reused_tokens: int
    prefill_seconds: float
    decode_seconds: float


@dataclass
class _Undo:
    """What a request needs to leave no trace: state, retained checkpoint and sampler from before it."""

    state: Checkpoint
    retained: Checkpoint | None
    sampler: Sampler


class Runtime:
    """One sequence of one decoder. Not thread-safe: one thread makes all calls.

    `state_bytes` and `checkpoint_bytes` bound the memory of the state and of the checkpoints; `masked`
    ids are never sampled. Raises BudgetError, before anything is allocated, when a budget is too small.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        checkpoint_bytes: int,
        state_bytes: int | None = None,
        masked: Sequence[int] = (),
    ) -> None:
        if state_bytes is not None and decoder.state_bytes > state_bytes:
            raise BudgetError(
                f"a context of {decoder.context} tokens needs {decoder.state_bytes} bytes of state, "
                f"the budget is {state_bytes}"
            )
        if decoder.checkpoint_bytes > checkpoint_bytes:
            raise BudgetError(
                f"a checkpoint needs {decoder.checkpoint_bytes} bytes, the budget is {checkpoint_bytes}"
            )
        self.decoder = decoder
        self.context = decoder.context
        self.poisoned = False
        self._budget = checkpoint_bytes
        self._masked = np.array(sorted(masked), np.intp)
        self._state: State = decoder.new_state()
        self._retained: Checkpoint | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens that the committed state stands for."""
        return tuple(self._state.tokens)

    def reset(self) -> None:
        """Forget everything, poison included."""
        self._state.clear()
        self._retained = None
        self.poisoned = False

    def validate(self, prompt: Sequence[int], options: GenerationOptions) -> None:
        """Raise InvalidInputError or ContextError if `generate` would refuse this request."""
        if self.poisoned:
            raise PoisonedError("the state could not be restored after a fault; reset the runtime")
        if not prompt:
            raise InvalidInputError("the prompt has no tokens", "prompt")
        for token in (*prompt, *options.stop_tokens):
            if not 0 <= token < self.decoder.vocabulary_size:
                raise InvalidInputError(
                    f"token id {token} is outside the vocabulary of {self.decoder.vocabulary_size}"
                )
        if options.max_tokens < 1:
            raise InvalidInputError(f"max_tokens is {options.max_tokens}; expected at least 1", "max_tokens")
        if not 1 <= options.prefill_block <= MAX_PREFILL_BLOCK:
            raise InvalidInputError(
                f"prefill block of {options.prefill_block} tokens; expected 1 to {MAX_PREFILL_BLOCK}"
            )
        if len(set(options.stop_tokens)) > MAX_STOP_TOKENS:
            raise InvalidInputError(f"more than {MAX_STOP_TOKENS} stop tokens", "stop_tokens")
        if len(prompt) + options.max_tokens > self.context:
            raise ContextError(len(prompt), options.max_tokens, self.context)

    def generate(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        *,
        cancellation: Cancellation | None = None,
        on_token: OnToken | None = None,
        on_prefill: OnPrefill | None = None,
    ) -> Completion:
        """Answer a prompt of token ids with the likeliest tokens; otherwise as `generate_sampled_until`."""
        return self.generate_sampled(
            prompt,
            options,
            GreedySampler(),
            cancellation=cancellation,
            on_token=on_token,
            on_prefill=on_prefill,
        )

    def generate_sampled(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        sampler: Sampler,
        *,
        cancellation: Cancellation | None = None,
        on_token: OnToken | None = None,
        on_prefill: OnPrefill | None = None,
    ) -> Completion:
        """Answer a prompt of token ids, however long it takes; otherwise as `generate_sampled_until`."""
        return self.generate_sampled_until(
            prompt,
            options,
            math.inf,
            sampler,
            cancellation=cancellation,
            on_token=on_token,
            on_prefill=on_prefill,
        )

    def generate_sampled_until(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        deadline: float,
        sampler: Sampler,
        *,
        cancellation: Cancellation | None = None,
        on_token: OnToken | None = None,
        on_prefill: OnPrefill | None = None,
    ) -> Completion:
        """Answer a prompt of token ids with tokens that `sampler` chooses.

        `on_token` gets every emitted token and may return True to end the answer there; `on_prefill` gets
        the prompt tokens done and in all. `deadline` is a time.monotonic() value, math.inf for none. A stop
        token that was drawn advances the sampler. Raises what `validate` raises, CancelledError,
        DeadlineError, EngineFaultError, or what sampler or callbacks raised; then state and sampler are as
        before the call. Where they are not, it raises SamplerLostError or PoisonedError.
        """
        self.validate(prompt, options)

        def check() -> None:
            if cancellation is not None and cancellation.cancelled:
                raise CancelledError("the request was cancelled")
            if time.monotonic() >= deadline:
                raise DeadlineError("the request's deadline passed")

        saved_sampler = sampler.clone()
        reused, from_retained = self._plan(prompt)
        undo = _Undo(self._rollback(reused, from_retained), self._retained, saved_sampler)
        try:
            check()
            self._rewind(reused, from_retained)
            begin = time.monotonic()
            logits = self._prefill(prompt, options, undo, check, on_prefill)
            middle = time.monotonic()
            emitted, finish, stop = self._decode(logits, options, sampler, check, on_token)
        except BaseException:
            self._take_back(undo, sampler)
            raise
        return Completion(
            tuple(emitted),
            finish,
            stop,
            len(prompt),
            reused,
            middle - begin,
            time.monotonic() - middle,
        )

    def _plan(self, prompt: Sequence[int]) -> tuple[int, bool]:
        """How many prompt tokens the state can keep, and whether it needs the retained checkpoint for that.

        The last prompt token is always evaluated: its logits are the first to sample from.
        """
        held = self._state.tokens
        common = 0
        for ours, theirs in zip(held, prompt[: len(prompt) - 1], strict=False):
            if ours != theirs:
                break
            common += 1
        if common == len(held) or not self._state.recurrent:
            return common, False
        if self._retained is not None and len(self._retained.tokens) <= common:
            return len(self._retained.tokens), True
        return 0, False

    def _rollback(self, reused: int, from_retained: bool) -> Checkpoint:
        """A checkpoint of the committed state that survives rewriting positions from `reused` on.

        What does not fit the budget is forgotten first: the state shrinks to the part that is reused.
        """
        retained = self._retained.nbytes if self._retained is not None else 0
        if self._state.checkpoint_bytes(reused) + retained > self._budget:
            self._rewind(reused, from_retained)
        return self._state.checkpoint(reused)

    def _rewind(self, reused: int, from_retained: bool) -> None:
        if self._retained is not None and from_retained:
            self._state.restore(self._retained)
        elif reused != len(self._state.tokens):
            self._state.truncate(reused)
        if self._retained is not None and len(self._retained.tokens) > reused:
            self._retained = None

    def _take_back(self, undo: _Undo, sampler: Sampler) -> None:
        """Restore the sampler and the state, each even if the other cannot be; a lost state is the worse."""
        try:
            sampler.restore(undo.sampler)
        except BaseException as error:
            raise SamplerLostError("the sampler could not be restored after a fault") from error
        finally:
            self._recover(undo)

    def _recover(self, undo: _Undo) -> None:
        try:
            self._state.restore(undo.state)
        except BaseException as error:
            self.poisoned = True
            raise PoisonedError("the state could not be restored after a fault") from error
        held = len(self._state.tokens)
        retained = undo.retained
        self._retained = retained if retained is not None and len(retained.tokens) <= held else None

    def _prefill(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        undo: _Undo,
        check: Callable[[], None],
        on_prefill: OnPrefill | None,
    ) -> Floats:
        """Evaluate what the state lacks of the prompt; logits [vocabulary] of its last token."""
        state, last = self._state, len(prompt) - 1
        while len(state.tokens) < last:
            done = len(state.tokens)
            end = min(done + options.prefill_block, last)
            if done < options.stable_prefix < end:
                end = options.stable_prefix
            self.decoder.evaluate([Step(state, prompt[done:end], "none")], check)
            if end == options.stable_prefix:
                self._retain(undo)
            if on_prefill is not None:
                on_prefill(end, len(prompt))
        logits: Floats = self.decoder.evaluate([Step(state, prompt[last:])], check)[0][0]
        if on_prefill is not None:
            on_prefill(len(prompt), len(prompt))
        return logits

    def _retain(self, undo: _Undo) -> None:
        """Keep a checkpoint of a recurrent state here; any other state can be truncated to here anyway.

        Where the budget does not hold the old one too, that one goes first, for good.
        """
        state = self._state
        length = len(state.tokens)
        needed = state.checkpoint_bytes(length) + undo.state.nbytes
        if not state.recurrent or needed > self._budget:
            return
        if undo.retained is not None and needed + undo.retained.nbytes > self._budget:
            undo.retained = None
        self._retained = None  # freed before the new copy is made
        self._retained = state.checkpoint(length)

    def _decode(
        self,
        logits: Floats,
        options: GenerationOptions,
        sampler: Sampler,
        check: Callable[[], None],
        on_token: OnToken | None,
    ) -> tuple[list[int], Finish, int | None]:
        stops = frozenset(options.stop_tokens)
        emitted: list[int] = []
        while True:
            check()
            token = sampler.sample(self._allowed(logits))
            if token in stops:
                return emitted, "stop", token
            emitted.append(token)
            if on_token is not None and on_token(token):
                return emitted, "stop", None
            if len(emitted) == options.max_tokens:
                return emitted, "length", None
            check()
            logits = self.decoder.evaluate([Step(self._state, [token])], check)[0][0]

    def _allowed(self, logits: Floats) -> Floats:
        if not np.all(np.isfinite(logits)):
            raise EngineFaultError("the model computed logits that are not finite")
        if self._masked.size:
            logits[self._masked] = -np.inf
        return logits
