# pyright: basic
"""What starting an operator costs: a bare call, and whole steps of models too small to compute anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from foretell import modules
from foretell.calibration.case import Case, Scope, gradients
from foretell.calibration.clock import Clock
from foretell.calibration.launches import launches
from foretell.cost.samples import Figure, Step

SUMMARY = "launches"

TINY = (
    ("gpt2:layers=4,hidden=32,heads=2,vocab=64,seq=8", 1),
    ("mlp:layers=8,hidden=16", 2),
    ("llama:layers=4,hidden=32,heads=2,kv_heads=2,ffn=64,vocab=64,seq=8", 1),
    ("resnet18:image=32,classes=10", 2),
)
STEPS = 12


def cases(scope: Scope) -> Iterator[Case]:
    yield Case(Figure(name="call", unit="s"), lambda clock: _call(scope, clock))
    yield Case(Figure(name="autograd call", unit="s"), lambda clock: _autograd(scope, clock))
    for model, batch in TINY[: 2 if scope.quick else len(TINY)]:
        if scope.device == "cuda" or not model.startswith("resnet"):  # a core has to compute there
            about = Step(model=model, batch=batch, launches=launches(model, batch))
            yield Case(about, lambda clock, m=model, b=batch: clock.wall(_step(scope, m, b), STEPS))


def _call(scope: Scope, clock: Clock) -> Sequence[float]:
    """Seconds of a call that does next to nothing."""
    x = scope.random(1)
    return clock.times(lambda: x + x)


def _autograd(scope: Scope, clock: Clock) -> Sequence[float]:
    """The same through autograd."""
    x = scope.random(1, trained=True)
    return clock.times(gradients(x.relu(), [x]))


def _step(scope: Scope, model: str, batch: int) -> Callable[[], Any]:
    """The two passes of a step: the optimizer has a probe of its own."""
    module = modules.build(model).to(scope.device)
    example = modules.example(model, batch)
    inputs = tuple(tensor.to(scope.device) for tensor in example.inputs)
    target = example.target.to(scope.device)

    def step() -> torch.Tensor:
        module.zero_grad(set_to_none=True)
        loss = example.loss(module(*inputs), target)
        loss.backward()
        return loss

    return step
