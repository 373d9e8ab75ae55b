"""The gated delta rule as a PyTorch module: it keeps what published kernels keep (`model/operators/delta_rule.py`)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from foretell.model.operators.delta_rule import CHUNK
from foretell.modules._state_space import chunks, joined


class Decays(NamedTuple):
    """Of chunks [sample, chunk, head, place, ...], from sums of logarithms up to each place."""

    left: torch.Tensor  # of what one place wrote, at each later one and itself
    since: torch.Tensor  # of the state before the chunk, at each place
    until: torch.Tensor  # of what a place wrote, at the chunk's end
    passed: torch.Tensor  # of the state before the chunk, at its end


def _by_chunk(x: torch.Tensor) -> torch.Tensor:
    """[sample, sequence, head, ...] as [sample, chunk, head, place, ...]."""
    return chunks(x, min(CHUNK, x.shape[1])).transpose(2, 3)


def _decays(sums: torch.Tensor) -> Decays:
    places = sums.shape[-1]
    later = torch.ones(places, places, dtype=torch.bool, device=sums.device).triu(1)
    left = (sums[..., :, None] - sums[..., None, :]).masked_fill(later, -torch.inf).exp()
    since, last = sums.exp()[..., None], sums[..., -1:]
    return Decays(left, since, (last - sums).exp()[..., None], last.exp()[..., None])


def _sums(dt: torch.Tensor, decay: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Logarithms of decays, summed up inside chunks."""
    return _by_chunk(-decay.exp() * F.softplus(dt + bias)).cumsum(-1)


def _met(k: torch.Tensor, e: torch.Tensor, by: Decays) -> torch.Tensor:
    """What keys have in common with earlier ones of their chunk, as far as it is written."""
    return ((k * e[..., None]) @ k.mT * by.left).tril(-1)


def _walked(w: torch.Tensor, u: torch.Tensor, k: torch.Tensor, by: Decays) -> tuple[torch.Tensor, ...]:
    """The state before each chunk, what each chunk writes of its values, and the last state."""
    state = (k[:, 0, :, 0, :, None] * u[:, 0, :, 0, None, :]) * 0.0
    states: list[torch.Tensor] = []
    written: list[torch.Tensor] = []
    for at in range(k.shape[1]):
        states.append(state)
        written.append(u[:, at] - w[:, at] @ state)
        state = state * by.passed[:, at] + (k[:, at] * by.until[:, at]).mT @ written[-1]
    return torch.stack(states, 1), torch.stack(written, 1), state


class _DeltaRule(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        q, k, v, dt, e, decay, bias = inputs
        lengths = [torch.linalg.vector_norm(part.float(), dim=-1) + 1e-6 for part in (q, k)]
        q, k = ((part / length[..., None]).to(v.dtype) for part, length in zip((q, k), lengths, strict=True))
        sums = _sums(dt, decay, bias)
        by = _decays(sums)
        qs, ks, vs, es = (_by_chunk(part) for part in (q, k, v, e))
        one = torch.eye(ks.shape[-2], dtype=torch.float32, device=v.device)
        met = _met(ks, es, by).to(torch.float32)
        inverse = torch.linalg.solve_triangular(one + met, one.expand_as(met), upper=False).to(v.dtype)
        w, u = inverse @ (ks * es[..., None] * by.since), inverse @ (vs * es[..., None])
        states, written, _ = _walked(w, u, ks, by)
        y = (qs * by.since) @ states + (qs @ ks.mT * by.left) @ written
        kept = (joined(part, v.shape[1]).clone() for part in (inverse, sums[..., None].float()))
        ctx.save_for_backward(q, k, *lengths, v, dt, e, decay, bias, *kept)
        return joined(y, v.shape[1]) * q.shape[-1] ** -0.5

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The products that make the output by hand; all before by autograd, with the inverse as it was kept."""
        *saved, inverse, _ = ctx.saved_tensors
        lengths = saved[2:4]
        inputs = [part.detach().requires_grad_() for part in (*saved[:2], *saved[4:])]
        q, k, v, dt, e, decay, bias = inputs
        inverse = _by_chunk(inverse).contiguous().requires_grad_()
        with torch.enable_grad():
            by = _decays(_sums(dt, decay, bias))
            qs, ks, vs, es = (_by_chunk(part) for part in (q, k, v, e))
            w, u = inverse @ (ks * es[..., None] * by.since), inverse @ (vs * es[..., None])
            states, written, last = _walked(w, u, ks, by)
            scores, starting = qs @ ks.mT * by.left, qs * by.since
        dy = _by_chunk(gradient * q.shape[-1] ** -0.5)
        first = torch.autograd.grad(
            (starting, states, scores, written, last),
            (*inputs, inverse),
            (dy @ states.mT, starting.mT @ dy, dy @ written.mT, scores.mT @ dy, torch.zeros_like(last)),
            retain_graph=True,
            materialize_grads=True,
        )
        with torch.enable_grad():
            met = _met(ks, es, by)
        of_met = -(inverse.mT @ first[-1] @ inverse.mT)
        second = torch.autograd.grad(met, inputs, of_met, allow_unused=True, materialize_grads=True)
        of_q, of_k, *rest = (one + other for one, other in zip(first, second, strict=False))
        return (*(_unit_gradient(*of) for of in ((of_q, q, lengths[0]), (of_k, k, lengths[1]))), *rest)


def _unit_gradient(gradient: torch.Tensor, unit: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
    """Of what was divided by its length: growth along it is divided away."""
    along = (gradient * unit).sum(-1, keepdim=True)
    return ((gradient - unit * along) / length[..., None]).to(unit.dtype)


class DeltaRuleLayer(nn.Module):
    """Rates of decay and the bias of steps, one each a head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.empty(heads).uniform_(1.0, 16.0).log())
        self.bias = nn.Parameter(torch.full((heads,), -4.6))

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dt: torch.Tensor, e: torch.Tensor
    ) -> torch.Tensor:
        return _DeltaRule.apply(q, k, v, dt, e, self.decay, self.bias)
