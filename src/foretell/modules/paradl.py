"""The oracle paper's layer files as PyTorch modules."""

from __future__ import annotations

import math

import torch
from torch import nn

from foretell.model.zoo._layer_build import window_of
from foretell.model.zoo._layer_file import LayerLine, paths
from foretell.model.zoo.paradl import Paradl
from foretell.modules.task import Example, class_loss

CONVOLUTION = {2: nn.Conv2d, 3: nn.Conv3d}
NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
MAX_POOL = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
AVERAGE_POOL = {2: nn.AvgPool2d, 3: nn.AvgPool3d}


class Dense(nn.Linear):
    """A dense layer over all that a sample has; its features are channels of a single position."""

    def __init__(self, layer: LayerLine) -> None:
        super().__init__(math.prod(layer.x), layer.y[0], bias=False)
        self.shape = layer.y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.flatten(1)).unflatten(1, self.shape)


class Add(nn.Module):
    """A shortcut: the sum of two tensors."""

    def forward(self, x: torch.Tensor, shortcut: torch.Tensor) -> torch.Tensor:
        return x + shortcut


def _module(layer: LayerLine) -> nn.Module:
    """The module of one line of a file."""
    extents, kernel = len(layer.x) - 1, layer.w[2:]
    match layer.kind:
        case "convolution":
            at, groups = window_of(layer), layer.x[0] // layer.w[0]
            return CONVOLUTION[extents](
                layer.x[0], layer.y[0], kernel, at.stride, at.padding, groups=groups, bias=False
            )
        case "max pool" | "average pool":
            at = window_of(layer)
            kind = MAX_POOL if layer.kind == "max pool" else AVERAGE_POOL
            return kind[extents](kernel, at.stride, at.padding, ceil_mode=at.ceil)
        case "norm":
            return NORM[extents](layer.x[0], affine=False)
        case "dense":
            return Dense(layer)
        case "add":
            return Add()
        case "dropout":
            return nn.Dropout(0.5)
        case _:
            return nn.ReLU(inplace=True)


class ParadlModule(nn.Module):
    """The layers of a file in a row; where a shortcut does not fit, an addition reads its input twice."""

    def __init__(self, fields: Paradl) -> None:
        super().__init__()
        file = fields.file()
        self.order = paths(file)
        for path, layer in zip(self.order, file.layers, strict=True):
            parent: nn.Module = self
            *folders, name = path.split(".")
            for folder in folders:
                if not hasattr(parent, folder):
                    parent.add_module(folder, nn.Module())
                parent = parent.get_submodule(folder)
            parent.add_module(name, _module(layer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        entry: torch.Tensor | None = None  # where the open residual block began
        for path in self.order:
            layer = self.get_submodule(path)
            if isinstance(layer, Add):
                x = layer(x, entry if entry is not None and entry.shape == x.shape else x)
                entry = None
                continue
            if isinstance(layer, nn.Conv2d | nn.Conv3d) and entry is None:
                entry = x
            x = layer(x)
            if isinstance(layer, nn.MaxPool2d | nn.MaxPool3d | nn.AvgPool2d | nn.AvgPool3d):
                entry = None
        return x.flatten(1)


def module(fields: Paradl) -> nn.Module:
    return ParadlModule(fields)


def example(fields: Paradl, batch: int) -> Example:
    file = fields.file()
    image = torch.randn(batch, *file.sample)
    return Example((image,), torch.randint(file.layers[-1].y[0], (batch,)), class_loss)
