# pyright: basic
"""Steps of optimizers over many tensors: as PyTorch runs them unasked, and fused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Final, cast

import torch

from foretell.calibration.case import Case, Scope, timed
from foretell.cost.samples import Precision, UpdateSample
from foretell.model.optimizer import OPTIMIZERS, optimizer

SUMMARY = "optimizers"

FIRST: Final = ("sgd", "adamw")
"""Timed by a quick calibration; a whole one times all that torch has itself."""


def _layers(wide: int, count: int) -> list[tuple[int, ...]]:
    """The weights of so many layers of a transformer."""
    return [(wide, wide), (wide,), (3 * wide, wide), (3 * wide,), (4 * wide, wide), (wide, 4 * wide), (wide,)] * count


FEW = [_layers(32, 2), _layers(128, 2)]
CPU = [_layers(32, 2), _layers(64, 4), _layers(128, 4), _layers(256, 4), _layers(512, 4)]
CUDA = [_layers(256, 4), _layers(768, 12), _layers(2048, 8), [(8192, 8192)]]


def cases(scope: Scope) -> Iterator[Case]:
    rules = FIRST if scope.quick else tuple(name for name in OPTIMIZERS if optimizer(name).torch)
    for rule, shapes, precision in product(rules, scope.choose(FEW, CPU, CUDA), scope.widths):
        for way in _ways(rule, scope):
            yield _step(scope, rule, way, shapes, precision)


def _ways(rule: str, scope: Scope) -> tuple[str, ...]:
    """Not all that torch has are fused (2.11: RMSprop is not)."""
    takes = inspect.signature(getattr(torch.optim, optimizer(rule).torch)).parameters
    return ("default", "fused") if scope.device == "cuda" and "fused" in takes else ("default",)


def _step(scope: Scope, rule: str, way: str, shapes: Sequence[tuple[int, ...]], precision: str) -> Case:
    def make() -> Any:
        tensors = [torch.nn.Parameter(scope.random(*shape, precision=precision)) for shape in shapes]
        for tensor in tensors:
            tensor.grad = torch.randn_like(tensor)
        found = optimizer(rule)
        fused = {"fused": True} if way == "fused" else {}
        return getattr(torch.optim, found.torch)(tensors, **{**found.arguments, "lr": 1e-4}, **fused).step

    count = sum(prod(shape) for shape in shapes)
    about = UpdateSample(
        rule=rule, parameters=count, tensors=len(shapes), precision=cast("Precision", precision), way=way
    )
    return timed(about, make)
