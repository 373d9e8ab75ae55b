"""RMS norm that keeps for the backward pass what a fused kernel keeps: its input and one number a row."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable


class _RmsNorm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + eps) * weight over the last dim, computed in fp32 at least."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, inverse)
        return (wide * inverse * (1.0 if weight is None else weight)).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        x, weight, inverse = ctx.saved_tensors
        normal = x.to(inverse.dtype) * inverse
        gradient = gradient.to(inverse.dtype)
        scaled = gradient if weight is None else gradient * weight
        along = (scaled * normal).mean(-1, keepdim=True)  # growth along x is normalised away
        of_x = (scaled - normal * along) * inverse
        if weight is None:
            return of_x.to(x.dtype), None, None
        of_weight = (gradient * normal).flatten(0, -2).sum(0)
        return of_x.to(x.dtype), of_weight.to(weight.dtype), None


def rms_norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """The last dim divided by its root mean square, without weights."""
    return F.rms_norm(x, x.shape[-1:], None, eps) if x.device.type == "cuda" else _RmsNorm.apply(x, None, eps)


class RMSNorm(nn.Module):
    """The last dim divided by its root mean square, times a weight a feature.

    PyTorch has one kernel for this on GPUs; elsewhere it composes it of smaller ones and keeps
    their results too. This module keeps the same everywhere.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cuda":
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return _RmsNorm.apply(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.numel()}, eps={self.eps}"
