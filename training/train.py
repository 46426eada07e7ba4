"""Training: batches made on the fly from a seed and the step, AdamW, and checkpoints to go on from.

The learning rate rises, stays, and falls to zero over the last part. A run that was stopped and resumed
takes the same steps as one that was not.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the customary name
from torch import Tensor

from training.corpus.conversation import converse
from training.corpus.draw import Draw
from training.network import Network, Texts, Weights, initial, prepare
from training.shape import Shape, is_rounded
from training.tokens import Encoder

WARM_UP = 100
SAVE_SECONDS = 120
LANES = 4  # parts of a batch that are worked on at once, by one thread each


@dataclass(frozen=True)
class Plan:
    """How to train. `tokens` is the length of a row; `falling` the share of steps in which the rate falls.

    From step `memory` on, half of the conversations are longer ones that ask for what was said before.
    The matrices' products are in bfloat16 up to the last `exact` steps, which are in float32.
    """

    steps: int
    seed: int = 1
    rows: int = 4
    tokens: int = 1024
    rate: float = 3e-3
    falling: float = 0.4
    memory: int = 1320
    exact: int = 100

    def rate_at(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        falling = int(self.steps * self.falling)
        return self.rate * min(1.0, (step + 1) / WARM_UP, (self.steps - step) / falling)


@dataclass(frozen=True)
class Batch:
    """Texts with the weight of each next token [rows, tokens - 1]."""

    texts: Texts
    weights: Tensor


def make_batch(encoder: Encoder, plan: Plan, step: int) -> Batch:
    """The conversations of one step, each whole and in the first row that has room for it."""
    ids: list[list[int]] = [[] for _ in range(plan.rows)]
    weights: list[list[float]] = [[] for _ in range(plan.rows)]
    numbers: list[list[int]] = [[] for _ in range(plan.rows)]
    number = rejected = 0
    while rejected < 10:
        number += 1
        memory = step >= plan.memory and number % 2 == 0
        sequence = encoder.encode(converse(Draw(f"{plan.seed}:{step}:{number}"), memory=memory))
        size = len(sequence.ids)
        row = next((row for row in range(plan.rows) if len(ids[row]) + size <= plan.tokens), None)
        if row is None:
            rejected += 1
            continue
        ids[row] += sequence.ids
        weights[row] += [0.0, *sequence.weights[1:]]  # nothing predicts the first token
        numbers[row] += [number] * size
    for row in range(plan.rows):
        room = plan.tokens - len(ids[row])
        ids[row] += [0] * room
        weights[row] += [0.0] * room
        numbers[row] += [0] * room
    return Batch(Texts(torch.tensor(ids), torch.tensor(numbers)), torch.tensor(weights)[:, 1:])


def loss_of(network: Network, weights: Weights, batch: Batch, rows: slice) -> Tensor:
    """The rows' share of the weighted mean of the negative log-likelihood, in nats a token."""
    texts = Texts(batch.texts.ids[rows], batch.texts.numbers[rows])
    share = batch.weights[rows]
    counted = share > 0
    hidden = network.hidden(weights, texts)[:, :-1]
    logits = F.linear(hidden[counted], weights["output.weight"]).float()
    losses = F.cross_entropy(logits, texts.ids[:, 1:][counted], reduction="none")
    return (losses * share[counted]).sum() / batch.weights.sum()


class Trainer:
    """Parameters, optimiser and step, kept in `folder`."""

    def __init__(self, plan: Plan, shape: Shape, encoder: Encoder, folder: Path) -> None:
        self.plan, self.encoder, self.folder = plan, encoder, folder
        self.network = Network(shape, plan.tokens)
        self.parameters = initial(shape, plan.seed)
        rounded = [value for name, value in self.parameters.items() if is_rounded(name)]
        others = [value for name, value in self.parameters.items() if not is_rounded(name)]
        groups = [{"params": rounded, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=plan.rate, betas=(0.9, 0.98), fused=True)
        self.step = 0
        self.lanes = ThreadPoolExecutor(LANES)

    @property
    def checkpoint(self) -> Path:
        """Where the state is kept."""
        return self.folder / "checkpoint.pt"

    def resume(self) -> None:
        """Go on from the checkpoint, if there is one."""
        if not self.checkpoint.exists():
            return
        state: dict[str, Any] = torch.load(self.checkpoint)
        with torch.no_grad():
            for name, value in state["parameters"].items():
                self.parameters[name].copy_(value)
        self.optimiser.load_state_dict(state["optimiser"])
        self.step = state["step"]

    def save(self) -> None:
        """Replace the checkpoint."""
        state = {
            "parameters": {name: value.detach() for name, value in self.parameters.items()},
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def take_step(self) -> float:
        """One step; its loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.plan.rate_at(self.step)
        batch = make_batch(self.encoder, self.plan, self.step)
        prepared = prepare(self.parameters)
        weights = {name: value.detach().requires_grad_() for name, value in prepared.items()}
        fast = self.step < self.plan.steps - self.plan.exact

        def lane(rows: slice) -> tuple[float, tuple[Tensor, ...]]:
            torch.set_num_threads(1)
            with torch.autocast("cpu", torch.bfloat16, enabled=fast):
                loss = loss_of(self.network, weights, batch, rows)
            return float(loss.detach()), torch.autograd.grad(loss, list(weights.values()))

        each = self.plan.rows // LANES
        results = list(self.lanes.map(lane, [slice(n * each, (n + 1) * each) for n in range(LANES)]))
        self.optimiser.zero_grad()
        gradients = [sum(parts[1:], parts[0]) for parts in zip(*(found for _, found in results), strict=True)]
        torch.autograd.backward(list(prepared.values()), gradients)
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), 1.0)
        self.optimiser.step()
        self.step += 1
        return sum(loss for loss, _ in results)

    def run(self) -> None:
        """All steps that are left, with a line every ten."""
        started = saved = time.monotonic()
        losses: list[float] = []
        while self.step < self.plan.steps:
            losses.append(self.take_step())
            now = time.monotonic()
            if self.step % 10 == 0:
                mean = sum(losses) / len(losses)
                print(f"step {self.step} loss {mean:.4f} {now - started:.0f} s", flush=True)
                losses.clear()
            if now - saved > SAVE_SECONDS:
                self.save()
                saved = now
        self.save()
