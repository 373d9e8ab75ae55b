# pyright: basic
"""What starting an operator costs: a bare call, and whole steps of models too small to compute anything.

On a processor such steps are also taken with other data going through the caches before each layer, as the data of a
layer that computes something does: the host's code has to come back into them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import torch

from foretell import modules
from foretell.calibration.case import Case, Scope, gradients
from foretell.calibration.clock import Clock
from foretell.calibration.launches import launches
from foretell.calibration.ranks import own_seconds
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
            if scope.device == "cpu":
                cold = msgspec.structs.replace(about, cold=True)
                yield Case(cold, lambda clock, m=model, b=batch: _cold(scope, clock, m, b))


def _call(scope: Scope, clock: Clock) -> Sequence[float]:
    """Seconds of a call that does next to nothing."""
    x = scope.random(1)
    return clock.times(lambda: x + x)


def _autograd(scope: Scope, clock: Clock) -> Sequence[float]:
    """The same through autograd."""
    x = scope.random(1, trained=True)
    return clock.times(gradients(x.relu(), [x]))


def _cold(scope: Scope, clock: Clock, model: str, batch: int) -> Sequence[float]:
    """Seconds of steps with other data before each layer, without those in which it goes through."""
    pushed: list[float] = []

    def push() -> None:
        pushed.append(own_seconds(clock.push))

    found: list[float] = []
    step = _step(scope, model, batch, push)
    for _ in range(STEPS):
        pushed.clear()
        (seconds,) = clock.wall(step, 1)
        found.append(seconds - sum(pushed[len(pushed) // 2 :]))  # the first half is that of a step to warm up
    return found


class _Between(torch.autograd.Function):
    """Does something on the way to a layer, and on the way back from it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, do: Callable[[], None]) -> torch.Tensor:
        ctx.do = do
        do()
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.do()
        return gradient, None


def _step(scope: Scope, model: str, batch: int, before_layers: Callable[[], None] | None = None) -> Callable[[], Any]:
    """The two passes of a step: the optimizer has a probe of its own."""
    module: Any = modules.build(model).to(scope.device)
    for layer in module.layers if before_layers else ():
        layer.register_forward_pre_hook(lambda _, given: (_Between.apply(given[0], before_layers), *given[1:]))
    example = modules.example(model, batch)
    inputs = tuple(tensor.to(scope.device) for tensor in example.inputs)
    target = example.target.to(scope.device)

    def step() -> torch.Tensor:
        module.zero_grad(set_to_none=True)
        loss = example.loss(module(*inputs), target)
        loss.backward()
        return loss

    return step
