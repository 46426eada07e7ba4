"""One question with its answer, and what a conversation remembers between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.chat import ToolCall
from training.corpus.draw import Draw


@dataclass(frozen=True)
class Exchange:
    """A user's question and the assistant's answer, with the thought before it.

    With a `call`, the assistant first calls a tool, is given `result`, and then thinks and answers.
    `kind` and `words` are for evaluation: what kind of task it is, and what an answer must hold if it may
    be worded freely (an empty tuple demands the answer itself).
    """

    kind: str
    question: str
    thought: str
    answer: str
    call: ToolCall | None = None
    call_thought: str = ""
    result: str = ""
    words: tuple[str, ...] = ()


@dataclass
class Talk:
    """What was said so far, as far as later questions may refer to it.

    `tools` are the names of the tools on offer; `follow_up` makes a question that only makes sense now.
    """

    tools: frozenset[str] = frozenset()
    name: str | None = None
    follow_up: Callable[[Draw, Talk], Exchange] | None = field(default=None, repr=False)
