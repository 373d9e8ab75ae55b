"""The multilayer perceptron as a PyTorch module."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from foretell.model.zoo.mlp import Mlp
from foretell.modules.task import Example, class_loss

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
}


class MlpLayer(nn.Module):
    """A dense layer and its activation."""

    def __init__(self, inputs: int, outputs: int, activation: str) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activation(self.linear(x))


class MlpModule(nn.Module):
    """Dense layers, each followed by an activation, and a dense output layer."""

    def __init__(self, fields: Mlp) -> None:
        super().__init__()
        widths = [fields.inputs, *[fields.hidden] * fields.layers]
        self.layers = nn.Sequential(
            *(MlpLayer(inputs, outputs, fields.activation) for inputs, outputs in pairwise(widths))
        )
        self.output = nn.Linear(fields.hidden, fields.classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.output(self.layers(features))


def module(fields: Mlp) -> nn.Module:
    return MlpModule(fields)


def example(fields: Mlp, batch: int) -> Example:
    features = torch.randn(batch, fields.inputs)
    return Example((features,), torch.randint(fields.classes, (batch,)), class_loss)
