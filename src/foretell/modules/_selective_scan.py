"""The scan of Mamba's first version as a PyTorch module, which keeps its inputs alone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable


def _scanned(*inputs: torch.Tensor) -> torch.Tensor:
    """Place by place; sums of products, so that no product of matrices is made."""
    x, dt, b, c, decay, skip = inputs
    steps, rate = F.softplus(dt), -decay.exp()
    state = x[:, 0, :, None] * b[:, 0, None] * 0.0
    rows: list[torch.Tensor] = []
    for at in range(x.shape[1]):
        step = steps[:, at, :, None]
        state = state * (rate * step).exp() + step * b[:, at, None] * x[:, at, :, None]
        rows.append((state * c[:, at, None]).sum(-1))
    return torch.stack(rows, 1) + x * skip


class _SelectiveScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*inputs)
        return _scanned(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = [part.detach().requires_grad_() for part in ctx.saved_tensors]
        with torch.enable_grad():
            y = _scanned(*inputs)
        return torch.autograd.grad(y, inputs, gradient)


class SelectiveScanLayer(nn.Module):
    """Rates of decay of each channel's numbers, and the part of each channel that is passed on."""

    def __init__(self, channels: int, state: int) -> None:
        super().__init__()
        rates = torch.arange(1, state + 1).log().to(torch.get_default_dtype())
        self.decay = nn.Parameter(rates.expand(channels, -1).clone())
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return _SelectiveScan.apply(x, dt, b, c, self.decay, self.skip)
