"""Rotary positions: pairs of features turn by an angle that grows with the position."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

Angles = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of every angle: [sequence, pair]."""


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, sign: int) -> torch.Tensor:
    """x[..., sequence, feature] with features i and i + n turned by angle i (or back, if sign is -1)."""
    half = cos.shape[-1]
    if torch.compiler.is_compiling():  # writing to parts of a tensor inside a gradient's rule is compiled wrong (2.13)
        first, second, rest = x.split((half, half, x.shape[-1] - 2 * half), dim=-1)
        return torch.cat([first * cos - sign * second * sin, second * cos + sign * first * sin, rest], dim=-1)
    y = torch.empty_like(x)
    first, second, rest = x.split((half, half, x.shape[-1] - 2 * half), dim=-1)
    to_first, to_second, to_rest = y.split((half, half, x.shape[-1] - 2 * half), dim=-1)
    torch.mul(first, cos, out=to_first).addcmul_(second, sin, value=-sign)
    torch.mul(second, cos, out=to_second).addcmul_(first, sin, value=sign)
    if rest.shape[-1]:
        to_rest.copy_(rest)
    return y


class _Rotate(torch.autograd.Function):
    """A turn is linear and its gradient is the turn back, so only the angles are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(gradient, cos, sin, -1), None, None


def rotate(x: torch.Tensor, angles: Angles) -> torch.Tensor:
    """x[..., sequence, feature] turned; features beyond the table's stay as they are."""
    return _Rotate.apply(x, *angles)


class RotaryTable(nn.Module):
    """The table of angles, a buffer that is not part of the model's state."""

    def __init__(self, features: int, sequence: int, theta: float = 10000.0) -> None:
        super().__init__()
        speed = theta ** -(torch.arange(0, features, 2, dtype=torch.float64) / features)
        angle = torch.outer(torch.arange(sequence, dtype=torch.float64), speed)
        self.register_buffer("cos", angle.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin", angle.sin().to(torch.get_default_dtype()), persistent=False)

    def forward(self, sequence: int) -> Angles:
        return self.cos[:sequence], self.sin[:sequence]
