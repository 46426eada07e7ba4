"""The `qwen35` graph in PyTorch, for training: ternary weights in the rotated space, rows of many texts.

A network is a dictionary of parameters by the names that the exported file gives them. `prepare` makes the
weights of one step out of the parameters (rounded, with the gradient passed straight through); `hidden` and
`logits` evaluate weights, wherever they come from. Formulas: Yang et al., "Gated Delta Networks" (2024), in
their chunked form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the customary name
from torch import Tensor

from training.shape import GROUP, Shape, is_rounded

CHUNK = 32
RESET = -60.0  # the log-decay at the start of a text: nothing of the one before is left
Weights = Mapping[str, Tensor]


def initial(shape: Shape, seed: int) -> dict[str, Tensor]:
    """Fresh parameters."""
    generator = torch.Generator().manual_seed(seed)
    parameters = {}
    for name, dims in shape.tensors().items():
        if len(dims) == 2 and not name.endswith("ssm_conv1d.weight"):
            value = torch.randn(dims, generator=generator) * _deviation(name, dims[1])
        elif name.endswith("ssm_conv1d.weight"):
            value = torch.randn(dims, generator=generator) * 0.2
            value[:, -1] += 0.5
        elif name.endswith("ssm_a"):  # as a logarithm; `prepare` makes it negative
            value = torch.log(torch.linspace(1, 8, dims[0]))
        elif name.endswith("ssm_dt.bias"):  # softplus of these is about 0.003 to 0.1
            steps = torch.exp(torch.linspace(math.log(0.003), math.log(0.1), dims[0]))
            value = steps + torch.log(-torch.expm1(-steps))
        else:
            value = torch.ones(dims)
        parameters[name] = value.requires_grad_()
    return parameters


def _deviation(name: str, inputs: int) -> float:
    """Standard deviation of a fresh matrix: what a token is outweighs what the layers first add to it."""
    if name == "token_embd.weight":
        return 0.5
    adds = name.endswith(("attn_output.weight", "ssm_out.weight", "ffn_down.weight"))
    return float(inputs**-0.5) * (0.3 if adds else 1.0)


def ternary(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes -1, 0, 1 of every group of 128 weights [groups, 128] and their scales [groups, 1].

    The scale is the group's mean magnitude as fp16 has it; a weight goes to the nearest of three values.
    """
    groups = weight.reshape(-1, GROUP)
    scales = groups.abs().mean(-1, keepdim=True).clamp_min(2.0**-14).half().float()
    return (groups / scales).round().clamp(-1, 1), scales


def prepare(parameters: Weights) -> dict[str, Tensor]:
    """The weights as the file will hold them; gradients pass through the rounding unchanged."""
    weights = {}
    for name, value in parameters.items():
        if is_rounded(name):
            with torch.no_grad():
                codes, scales = ternary(value)
                change = (codes * scales).view_as(value) - value
            weights[name] = value + change
        elif name.endswith(("ssm_alpha.weight", "ssm_beta.weight")):
            weights[name] = value + (value.detach().bfloat16().float() - value.detach())
        elif name.endswith("ssm_a"):
            weights[name] = -torch.exp(value)
        else:
            weights[name] = value
    return weights


@dataclass(frozen=True)
class Texts:
    """Token ids [rows, tokens] and, for each, the number of its text in the row; texts do not mix."""

    ids: Tensor
    numbers: Tensor

    def attends(self) -> Tensor:
        """What to add to the scores of attention: nothing is seen of other texts or of later tokens."""
        length = self.ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        same = self.numbers[:, :, None] == self.numbers[:, None, :]
        kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
        return torch.zeros((), dtype=kind).where(same & causal, -1e9)[:, None]

    def reaches(self, distance: int) -> Tensor:
        """Whether the token `distance` before is of the same text, as 0 or 1 [rows, tokens, 1]."""
        same = self.numbers[:, distance:] == self.numbers[:, : self.numbers.shape[1] - distance]
        return F.pad(same.float(), (distance, 0))[..., None]


class Network:
    """A shape with its constants: signs, rotation matrix and rotary tables for rows of `tokens`."""

    def __init__(self, shape: Shape, tokens: int) -> None:
        self.shape = shape
        self.signs = {width: torch.tensor(values).float() for width, values in shape.signs().items()}
        matrix = torch.ones(1, 1)
        while matrix.shape[0] < GROUP:
            matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
        self.matrix = matrix / math.sqrt(GROUP)
        pairs = torch.arange(shape.rotary // 2, dtype=torch.float64)
        angles = torch.arange(tokens)[:, None] * shape.rope_base ** (-2 * pairs / shape.rotary)
        self.cosines, self.sines = angles.cos().float()[:, None], angles.sin().float()[:, None]

    def rotate(self, x: Tensor) -> Tensor:
        """H (signs ⊙ x) on the last axis."""
        return self._transform(x * self.signs[x.shape[-1]])

    def _transform(self, x: Tensor) -> Tensor:
        return (x.reshape(-1, GROUP) @ self.matrix).view(x.shape)

    def hidden(self, weights: Weights, texts: Texts) -> Tensor:
        """What the output matrix is given, rotated, [rows, tokens, width]."""
        x = self._transform(weights["token_embd.weight"][texts.ids]) * self.signs[self.shape.width]
        attends = texts.attends()
        reaches = [texts.reaches(distance) for distance in range(1, self.shape.taps)]
        for layer in range(self.shape.layers):
            name = f"blk.{layer}."
            h = self.norm(x, weights[f"{name}attn_norm.weight"])
            if self.shape.is_attention(layer):
                x = x + self._attention(weights, name, h, attends)
            else:
                x = x + self._delta_net(weights, name, h, reaches)
            f = self.rotate(self.norm(x, weights[f"{name}post_attention_norm.weight"]))
            gate = F.linear(f, weights[f"{name}ffn_gate.weight"])
            up = F.linear(f, weights[f"{name}ffn_up.weight"])
            x = x + F.linear(self.rotate(F.silu(gate) * up), weights[f"{name}ffn_down.weight"])
        return self.rotate(self.norm(x, weights["output_norm.weight"]))

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMSNorm of the last axis."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.shape.epsilon) * weight

    def _unit(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.shape.epsilon)

    def _attention(self, weights: Weights, name: str, h: Tensor, attends: Tensor) -> Tensor:
        shape, (rows, length, _) = self.shape, h.shape
        r = self.rotate(h)
        both = F.linear(r, weights[f"{name}attn_q.weight"]).view(rows, length, shape.heads, 2 * shape.dim)
        q, gate = both.chunk(2, -1)
        k = F.linear(r, weights[f"{name}attn_k.weight"]).view(rows, length, shape.kv_heads, shape.dim)
        v = F.linear(r, weights[f"{name}attn_v.weight"]).view(rows, length, shape.kv_heads, shape.dim)
        q = self._rope(self.norm(q, weights[f"{name}attn_q_norm.weight"]))
        k = self._rope(self.norm(k, weights[f"{name}attn_k_norm.weight"]))
        shared = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(shared, 2), v.repeat_interleave(shared, 2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        scores = (q * shape.dim**-0.5) @ k.transpose(-1, -2) + attends
        mixed = (_softmax(scores) @ v).transpose(1, 2)
        gated = (mixed * torch.sigmoid(gate)).reshape(rows, length, -1)
        return F.linear(self.rotate(gated), weights[f"{name}attn_output.weight"])

    def _rope(self, x: Tensor) -> Tensor:
        half, length = self.shape.rotary // 2, x.shape[1]
        a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        cosines, sines = self.cosines[:length], self.sines[:length]
        return torch.cat((a * cosines - b * sines, a * sines + b * cosines, rest), -1)

    def _delta_net(self, weights: Weights, name: str, h: Tensor, reaches: list[Tensor]) -> Tensor:
        shape, (rows, length, _) = self.shape, h.shape
        r = self.rotate(h)
        raw = F.linear(r, weights[f"{name}attn_qkv.weight"])
        gate = F.linear(r, weights[f"{name}attn_gate.weight"])
        step = F.linear(h, weights[f"{name}ssm_alpha.weight"]) + weights[f"{name}ssm_dt.bias"]
        beta = torch.sigmoid(F.linear(h, weights[f"{name}ssm_beta.weight"]))
        decay = weights[f"{name}ssm_a"] * F.softplus(step)
        decay = torch.where(reaches[0] > 0, decay, RESET)
        taps = weights[f"{name}ssm_conv1d.weight"]
        c = raw * taps[:, -1]
        for distance, reach in enumerate(reaches, 1):
            c = c + F.pad(raw[:, :-distance], (0, 0, distance, 0)) * reach * taps[:, -1 - distance]
        q, k, v = F.silu(c).split((shape.key_width, shape.key_width, shape.value_width), -1)
        repeats = shape.value_heads // shape.key_heads  # value head h reads key head h mod key heads
        q = self._unit(q.view(rows, length, shape.key_heads, -1)).repeat(1, 1, repeats, 1)
        k = self._unit(k.view(rows, length, shape.key_heads, -1)).repeat(1, 1, repeats, 1)
        v = v.view(rows, length, shape.value_heads, -1)
        with torch.autocast("cpu", enabled=False):
            mixed = delta_rule(*(each.float() for each in (q * shape.dim**-0.5, k, v, decay, beta)))
        y = self.norm(mixed, weights[f"{name}ssm_norm.weight"]).reshape(rows, length, -1) * F.silu(gate)
        grouped = y.view(rows, length, repeats, shape.key_heads, shape.dim).transpose(2, 3)
        return F.linear(self.rotate(grouped.reshape(rows, length, -1)), weights[f"{name}ssm_out.weight"])


def _softmax(scores: Tensor) -> Tensor:
    """Softmax in the precision of the scores."""
    with torch.autocast("cpu", enabled=False):
        return scores.softmax(-1)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """The gated delta rule from an empty state, chunk by chunk.

    q, k, v [rows, tokens, heads, dim]; log-decay and strength [rows, tokens, heads]; tokens a multiple of
    CHUNK. With D_ij = exp(G_i - G_j) and A the strict lower triangle of beta_i (k_i · k_j) D_ij, the inverse
    of I + A is the product of I + (-A)^(2^n), as A is nilpotent.
    """
    rows, length, heads, dim = q.shape

    def chunks(x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(rows * heads, length // CHUNK, CHUNK, *x.shape[3:])

    q, k, v, decay, beta = chunks(q), chunks(k), chunks(v), chunks(decay), chunks(beta)[..., None]
    total = decay.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril()
    differences = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, -math.inf).exp()
    total = total[..., None]
    power = -(beta * (k @ k.transpose(-1, -2)) * differences).tril(-1)
    identity = torch.eye(CHUNK)
    inverse = identity + power
    for _ in range(CHUNK.bit_length() - 2):
        power = power @ power
        inverse = inverse + inverse @ power
    grown = total.exp()
    values = inverse @ (beta * v)
    keys = inverse @ (beta * grown * k)
    within = (q @ k.transpose(-1, -2)) * differences
    q = q * grown
    last = total[:, :, -1:]
    k = (k * (last - total).exp()).transpose(-1, -2)
    last = last.exp()
    state = q.new_zeros(rows * heads, dim, dim)  # (key, value)
    out = []
    for each in zip(*(x.unbind(1) for x in (values, keys, q, within, last, k)), strict=True):
        values_n, keys_n, q_n, within_n, last_n, k_n = each
        new = values_n - keys_n @ state
        out.append(q_n @ state + within_n @ new)
        state = last_n * state + k_n @ new
    return torch.stack(out, 1).view(rows, heads, length, dim).transpose(1, 2)
