# pyright: basic
"""Optimizers as torch runs them: a class of torch's own, or the steps that an optimizer's file has."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import torch
from torch import nn

from foretell.errors import BadInput
from foretell.model.graph import Graph
from foretell.model.layers import layers
from foretell.model.matrices import inside
from foretell.model.optimizer import OPTIMIZERS, Optimizer, optimizer
from foretell.runtime.subject import TorchOptimizer

HIDDEN = "hidden"
"""The attribute of a parameter that belongs to a layer of the model."""


def mark_hidden(module: nn.Module, graph: Graph) -> None:
    """Tell parameters of layers from tables of words and the last layer, as some optimizers do."""
    names = layers(graph)
    for name, weight in module.named_parameters():
        setattr(weight, HIDDEN, inside(names, name))


def marked_as(weight: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    """A copy of a weight, which is updated in its place."""
    setattr(copy, HIDDEN, getattr(weight, HIDDEN, False))
    return copy


class ByRules(torch.optim.Optimizer):
    """Goes from weight to weight, each by its rule."""

    found: ClassVar[Optimizer]

    def __init__(self, params: Any, **arguments: Any) -> None:
        super().__init__(params, {**self.found.arguments, **arguments})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, group)

    def _step(self, weight: torch.Tensor, settings: dict[str, Any]) -> None:
        own, gradient, rule = weight.detach(), weight.grad, self.found.rule
        if self.found.matrix_rule and weight.dim() > 1 and getattr(weight, HIDDEN, False):
            own, gradient, rule = _matrices(own), _matrices(gradient), self.found.matrix_rule
        assert rule.step is not None  # `torch_class` has looked
        rule.step(own, gradient, self.state[weight], settings)


def _matrices(values: Any) -> Any:
    """A view with rows and columns last: experts are a stack of matrices, windows of a convolution are columns."""
    return values if values.dim() < 4 else values.flatten(1)


@functools.cache
def torch_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of an optimizer."""
    found = optimizer(name)
    if found.torch:
        return getattr(torch.optim, found.torch)
    if any(rule.step is None for rule in (found.rule, found.matrix_rule or found.rule)):
        raise BadInput(f"{name} has no step that runs", where="--optimizer", fix=", ".join(OPTIMIZERS))
    return type(name.capitalize(), (ByRules,), {"found": found})


def torch_rule(name: str, rate: float, times: float = 1.0) -> TorchOptimizer:
    """The optimizer of this name: its usual rate or another, so many times."""
    arguments = optimizer(name).arguments
    return TorchOptimizer(torch_class(name), {**arguments, "lr": (rate or arguments["lr"]) * times})
