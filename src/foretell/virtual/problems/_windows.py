# pyright: basic
"""Convolutions as products of matrices, for many weights at once.

Under `vmap` a convolution of weights that differ from worker to worker becomes one of groups, which libraries run
group after group. A product of windows with weights becomes a batch of products, which they run at once.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def _windows(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """[channel x kernel, sample x place] of image[sample, channel, y, x]."""
    views = image.unfold(-2, height, 1).unfold(-2, width, 1)
    return views.permute(1, 4, 5, 0, 2, 3).flatten(0, 2).flatten(1)


class _Convolve(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        height, width = weight.shape[-2:]
        made = weight.flatten(1) @ _windows(image, height, width)
        places = (image.shape[-2] - height + 1, image.shape[-1] - width + 1)
        return made.unflatten(1, (image.shape[0], *places)).transpose(0, 1)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, above: torch.Tensor):
        image, weight = ctx.saved_tensors
        height, width = weight.shape[-2:]
        rows = above.transpose(0, 1).flatten(1)
        of_weight = (rows @ _windows(image, height, width).transpose(0, 1)).reshape(weight.shape)
        if not ctx.needs_input_grad[0]:
            return None, of_weight
        around = F.pad(above, (width - 1, width - 1, height - 1, height - 1))
        turned = weight.flip(-1, -2).transpose(0, 1).flatten(1)
        below = turned @ _windows(around, height, width)
        return below.unflatten(1, (image.shape[0], *image.shape[-2:])).transpose(0, 1), of_weight


class _Windowed(nn.Module):
    """A convolution with the weights of another."""

    def __init__(self, like: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = like.weight, like.bias
        self.pad = [int(side) for side in (like.padding[1], like.padding[0]) for _ in range(2)]

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        made = _Convolve.apply(F.pad(image, self.pad) if any(self.pad) else image, self.weight)
        return made if self.bias is None else made + self.bias[:, None, None]


def with_windows(module: nn.Module) -> nn.Module:
    """The module with its plain convolutions as products; parameters keep their names."""
    for name, part in list(module.named_modules()):
        if isinstance(part, nn.Conv2d) and _plain(part):
            module.set_submodule(name, _Windowed(part))
    return module


def _plain(part: nn.Conv2d) -> bool:
    steps = {*part.stride, *part.dilation, part.groups}
    return steps == {1} and not isinstance(part.padding, str) and part.padding_mode == "zeros"
