"""Layers of Mamba-2 as PyTorch modules: a scan that keeps its inputs alone, as fused kernels do."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from foretell.model.zoo._state_space import StateSpace
from foretell.modules._normalization import RMSNorm, rms_norm


class ScanParts(NamedTuple):
    """What a scan is made of, chunk by chunk: [sample, chunk, group, share, place, ...]."""

    values: torch.Tensor
    keys: torch.Tensor  # without share, as queries
    queries: torch.Tensor
    left: torch.Tensor  # of each place's value at each later place of the chunk
    ending: torch.Tensor  # keys, by how much of them is left at the chunk's end
    starting: torch.Tensor  # queries, by how much is left of what was there at its start
    passed: torch.Tensor  # how much of a state a chunk leaves


def chunks(x: torch.Tensor, length: int) -> torch.Tensor:
    """x[sample, sequence, ...] as [sample, chunk, place, ...], the last chunk filled up with zeros."""
    more = -x.shape[1] % length
    if more:
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, more))
    return x.unflatten(1, (-1, length))


def _steps(dt: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.softplus(dt + bias)


def _parts(
    x: torch.Tensor, steps: torch.Tensor, b: torch.Tensor, c: torch.Tensor, rate: torch.Tensor, chunk: int
) -> ScanParts:
    """Of x[sample, sequence, group, share, feature], without a product."""
    length = min(chunk, x.shape[1])
    values = chunks(x * steps[..., None], length).permute(0, 1, 3, 4, 2, 5)
    fall = chunks(steps * rate, length).permute(0, 1, 3, 4, 2).cumsum(-1)
    keys, queries = (chunks(part, length).transpose(2, 3) for part in (b, c))
    later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    left = (fall[..., :, None] - fall[..., None, :]).masked_fill(later, -torch.inf).exp()
    ending = keys[:, :, :, None] * (fall[..., -1:] - fall).exp()[..., None]
    starting = queries[:, :, :, None] * fall.exp()[..., None]
    return ScanParts(values, keys, queries, left, ending, starting, fall[..., -1, None, None].exp())


def _states(added: torch.Tensor, passed: torch.Tensor) -> torch.Tensor:
    """The state before each chunk, from what each adds."""
    states = [added[:, 0] * 0.0]
    for at in range(added.shape[1] - 1):
        states.append(states[-1] * passed[:, at] + added[:, at])
    return torch.stack(states, 1)


def joined(y: torch.Tensor, sequence: int) -> torch.Tensor:
    """[sample, chunk, ..., place, feature] as [sample, sequence, ..., feature]."""
    return y.movedim(-2, 2).flatten(1, 2)[:, :sequence]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, chunk: int, *inputs: torch.Tensor) -> torch.Tensor:
        x, dt, b, c, decay, skip, bias = inputs
        of = _parts(x, _steps(dt, bias), b, c, -decay.exp(), chunk)
        ctx.save_for_backward(*inputs)
        ctx.chunk = chunk
        scores = (of.queries @ of.keys.mT)[:, :, :, None] * of.left
        y = joined(scores @ of.values + of.starting @ _states(of.ending.mT @ of.values, of.passed), x.shape[1])
        return (y + x * skip[..., None]).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Products by hand; what lies between them by autograd."""
        inputs = [part.detach().requires_grad_() for part in ctx.saved_tensors]
        x, dt, b, c, decay, skip, bias = inputs
        with torch.enable_grad():
            of = _parts(x, _steps(dt, bias), b, c, -decay.exp(), ctx.chunk)
        values, keys, queries, _, ending, starting, _ = ScanParts(*(part.detach() for part in of))
        met = (queries @ keys.mT).requires_grad_()
        added = (ending.mT @ values).requires_grad_()
        with torch.enable_grad():
            scores, states = met[:, :, :, None] * of.left, _states(added, of.passed)
            skipped = x * skip[..., None]
        dy = chunks(gradient, min(ctx.chunk, x.shape[1])).permute(0, 1, 3, 4, 2, 5)
        first = torch.autograd.grad(
            (scores, states, skipped),
            (*inputs, met, added),
            (dy @ values.mT, starting.mT @ dy, gradient),
            retain_graph=True,
            materialize_grads=True,
        )
        of_met, of_added = first[-2:]
        of_values = scores.detach().mT @ dy + ending @ of_added
        found = torch.autograd.grad(
            (of.values, of.keys, of.queries, of.ending, of.starting),
            inputs,
            (of_values, of_met.mT @ queries, of_met @ keys, values @ of_added.mT, dy @ states.detach().mT),
            materialize_grads=True,
        )
        return (None, *(one + other for one, other in zip(first, found, strict=False)))


class _ShortConvolution(torch.autograd.Function):
    """Sums of shifted copies; x alone is kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        y = x * weight[:, -1] + (0.0 if bias is None else bias)
        for back in range(1, min(weight.shape[1], x.shape[1])):
            y[:, back:].add_(x[:, :-back] * weight[:, -1 - back])
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x, of_weight = gradient * weight[:, -1], torch.zeros_like(weight)
        of_weight[:, -1] = (gradient * x).sum((0, 1))
        for back in range(1, min(weight.shape[1], x.shape[1])):
            of_x[:, :-back].add_(gradient[:, back:] * weight[:, -1 - back])
            of_weight[:, -1 - back] = (gradient[:, back:] * x[:, :-back]).sum((0, 1))
        return of_x, of_weight, gradient.sum((0, 1)) if ctx.biased else None


class ChunkScan(nn.Module):
    """Rates of decay, the part of values that is passed on, and the bias of steps: one each a head."""

    def __init__(self, sizes: StateSpace) -> None:
        super().__init__()
        heads = (sizes.groups, sizes.heads // sizes.groups)
        self.chunk = sizes.chunk
        self.decay = nn.Parameter(torch.arange(1.0, sizes.heads + 1).log().to(torch.get_default_dtype()).view(heads))
        self.skip = nn.Parameter(torch.ones(heads))
        self.bias = nn.Parameter(torch.full(heads, -4.6))  # steps of 0.01

    def forward(self, x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return _Scan.apply(self.chunk, x, dt, b, c, self.decay, self.skip, self.bias)


class ChannelConvolution(nn.Module):
    """A causal convolution of each channel."""

    def __init__(self, channels: int, taps: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps).uniform_(-0.5, 0.5))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ShortConvolution.apply(x, self.weight, self.bias)


class GroupedNorm(nn.Module):
    """A norm over the features of each group, times a weight a feature."""

    def __init__(self, features: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x.unflatten(-1, (self.groups, -1))).flatten(-2) * self.weight


class StateSpaceLayer(nn.Module):
    """One product in, a short convolution, a scan, a gated norm, one product out."""

    def __init__(self, hidden: int, sizes: StateSpace) -> None:
        super().__init__()
        self.sizes = sizes
        self.input = nn.Linear(hidden, sizes.inner + sizes.convolved + sizes.heads, bias=False)
        self.convolution = ChannelConvolution(sizes.convolved, sizes.taps)
        self.scan = ChunkScan(sizes)
        self.norm = RMSNorm(sizes.inner) if sizes.groups == 1 else GroupedNorm(sizes.inner, sizes.groups)
        self.output = nn.Linear(sizes.inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = self.sizes
        gate, mixed, dt = self.input(x).split((sizes.inner, sizes.convolved, sizes.heads), dim=-1)
        mixed = F.silu(self.convolution(mixed))
        keys = sizes.groups * sizes.state
        value, key, query = mixed.split((sizes.inner, keys, keys), dim=-1)
        value = value.unflatten(-1, (sizes.groups, -1, sizes.head_dim))
        key, query = (part.unflatten(-1, (sizes.groups, -1)) for part in (key, query))
        y = self.scan(value, dt.unflatten(-1, (sizes.groups, -1)), key, query)
        return self.output(self.norm(y.flatten(2) * F.silu(gate)))
