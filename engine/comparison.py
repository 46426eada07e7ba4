"""Compares a run with a receipt while it goes on, and says in what and where they first differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from engine.receipt import STEP_DIGITS, Receipt
from engine.runtime import Completion
from engine.witness import StepDigests, Witness, digest_of


@dataclass(frozen=True)
class Difference:
    """What differs, and at which output token; `index` is None where all tokens agree."""

    part: Literal["token", "end", "logits"]
    index: int | None


class Comparison:
    """Takes the tokens of a run for `prompt`; the first other one ends the run."""

    def __init__(self, receipt: Receipt, prompt: Sequence[int]) -> None:
        self.agreeing = 0  # tokens that came and agree
        self.token: int | None = None  # the first other one
        self._digests = StepDigests(prompt)
        self._output = receipt.output
        self._ended_by_text = receipt.output.finish == "stop" and receipt.output.stop_token is None

    def on_token(self, token: int) -> bool:
        """Take one token; True ends the run here, as the text once did or because it differs."""
        start = self.agreeing * STEP_DIGITS
        if self._digests.step(token) != self._output.steps[start : start + STEP_DIGITS]:
            self.token = token
            return True
        self.agreeing += 1
        return self._ended_by_text and self.agreeing == self._output.tokens

    def difference(self, completion: Completion, witness: Witness) -> Difference | None:
        """The first difference of the whole run, None if all agrees."""
        output = self._output
        if self.token is not None:
            return Difference("token", self.agreeing)
        end = (completion.finish, completion.stop_token, digest_of(completion.tokens))
        if end != (output.finish, output.stop_token, output.sha256):
            return Difference("end", self.agreeing)
        return None if witness.logits_sha256 == output.logits_sha256 else Difference("logits", None)
