"""AmoebaNet-D as a PyTorch module."""

from __future__ import annotations

import torch
from torch import nn

from foretell.model.zoo.amoebanet import HALVED, Amoebanet, CellConvolution, CellShape, convolutions
from foretell.modules.task import Example, images


class NormedConvolution(nn.Module):
    """A ReLU, a convolution and its norm."""

    def __init__(self, inside: int, conv: CellConvolution) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, conv.filters, conv.kernel, conv.stride, conv.padding, bias=False)
        self.norm = nn.BatchNorm2d(conv.filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(torch.relu(x)))


class Halved(nn.Module):
    """Half of the filters see every second pixel, the others the pixels between."""

    def __init__(self, inside: int, filters: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, filters // 2, 1, 2, bias=False)
        self.conv2 = nn.Conv2d(inside, filters // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x)
        moved = nn.functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        return self.norm(torch.cat([self.conv1(x), self.conv2(moved)], 1))


def _operation(word: str, channels: int, stride: int) -> nn.Module:
    if word == "same":
        return nn.Identity()
    if word == "maximum":
        return nn.MaxPool2d(2, stride)
    if word == "average":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    found: list[nn.Module] = []
    for conv in convolutions(word, channels, stride):
        found.append(NormedConvolution(channels, conv))
        channels = conv.filters
    return nn.Sequential(*found)


class AmoebaCell(nn.Module):
    """Ten operations on the two cells before, added in pairs."""

    def __init__(self, cell: CellShape) -> None:
        super().__init__()
        narrowed = CellConvolution(cell.channels, (1, 1))
        self.plan = cell.plan
        self.reduce1 = NormedConvolution(cell.last, narrowed)
        self.reduce2: nn.Module = nn.Identity()
        if cell.after_reduction:
            self.reduce2 = Halved(cell.before, cell.channels)
        elif cell.before != cell.channels:
            self.reduce2 = NormedConvolution(cell.before, narrowed)
        self.operations = nn.ModuleList(
            _operation(step.word, cell.channels, 2 if cell.reduces and step.state < 2 else 1)
            for step in cell.plan.steps
        )

    def forward(self, before: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        states = [self.reduce1(last), self.reduce2(before)]
        found: list[torch.Tensor] = []
        for step, operation in zip(self.plan.steps, self.operations, strict=True):
            found.append(operation(states[step.state]))
            if len(found) % 2 == 0:
                states.append(found[-2] + found[-1])
        return torch.cat([states[at] for at in self.plan.given], 1)


class AmoebanetModule(nn.Module):
    """A convolution, cells, and a dense layer over the mean."""

    def __init__(self, fields: Amoebanet) -> None:
        super().__init__()
        self.stem1 = nn.Sequential(NormedConvolution(3, CellConvolution(fields.filters // 4, (3, 3), (2, 2))))
        cells = fields.cells
        self.names = list(cells)
        for name, cell in cells.items():
            self.add_module(name, AmoebaCell(cell))
        self.pool = nn.AvgPool2d(fields.image // HALVED)
        self.classify = nn.Linear(next(reversed(cells.values())).width, fields.classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        before = last = self.stem1(image)
        for name in self.names:
            before, last = last, self.get_submodule(name)(before, last)
        return self.classify(self.pool(last).flatten(1))


def module(fields: Amoebanet) -> nn.Module:
    return AmoebanetModule(fields)


def example(fields: Amoebanet, batch: int) -> Example:
    return images(batch, fields.image, fields.classes)
