# pyright: basic
"""What starting an operator costs: a bare call, and whole steps of models too small to compute anything.

On a processor such steps are also taken with other data going through the caches before each operator, as the data of
one that computes something does: the host's code has to come back into them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec
import torch

from foretell import modules
from foretell.calibration.case import Case, Scope, gradients
from foretell.calibration.clock import DeviceClock
from foretell.calibration.launches import launches, launches_by_pass
from foretell.cost.samples import FigureSample, StepSample

SUMMARY = "launches"

TINY = (
    ("gpt2:layers=4,hidden=32,heads=2,vocab=64,seq=8", 1),
    ("mlp:layers=8,hidden=16", 2),
    ("llama:layers=4,hidden=32,heads=2,kv_heads=2,ffn=64,vocab=64,seq=8", 1),
    ("resnet18:image=32,classes=10", 2),
)
STEPS = 12
PASSES = ("forward", "backward")


def cases(scope: Scope) -> Iterator[Case]:
    yield Case(FigureSample(name="call", unit="s"), lambda clock: _call(scope, clock))
    yield Case(FigureSample(name="autograd call", unit="s"), lambda clock: _autograd(scope, clock))
    for model, batch in TINY[: 2 if scope.quick else len(TINY)]:
        if scope.device == "cuda" or not model.startswith("resnet"):  # a core has to compute there
            about = StepSample(model=model, batch=batch, launches=launches(model, batch))
            yield Case(about, lambda clock, m=model, b=batch: clock.wall(_Step(scope, m, b), STEPS))
            if scope.device == "cpu":
                for part, count in zip(PASSES, launches_by_pass(model, batch), strict=True):
                    cold = msgspec.structs.replace(about, launches=count, cold=True, part=part)
                    yield Case(cold, lambda clock, m=model, b=batch, p=part: _cold(scope, clock, m, b)[p])


def _call(scope: Scope, clock: DeviceClock) -> Sequence[float]:
    """Seconds of a call that does next to nothing."""
    x = scope.random(1)
    return clock.times(lambda: x + x)


def _autograd(scope: Scope, clock: DeviceClock) -> Sequence[float]:
    """The same through autograd."""
    x = scope.random(1, trained=True)
    return clock.times(gradients(x.relu(), [x]))


@cache
def _cold(scope: Scope, clock: DeviceClock, model: str, batch: int) -> Mapping[str, Sequence[float]]:
    """Seconds of either pass with the host's code cold, without those in which other data goes through.

    Three steps in turn: a plain one, one with hooks that do nothing, and one with hooks that push. What the hooks take
    themselves is no part of it.
    """
    plain, hooked = _Step(scope, model, batch), _Step(scope, model, batch)
    hooks = _Hooks(hooked.module, clock.push)
    found: dict[str, list[float]] = {part: [] for part in PASSES}
    for step in (plain, hooked):
        step.timed()
    for _ in range(STEPS):
        alone = plain.timed()
        calm = hooked.timed()
        with hooks.pushing():
            pushed = hooked.timed(hooks)
        for part, *seconds in zip(PASSES, alone, calm, pushed, strict=True):
            found[part].append(seconds[0] + max(0.0, seconds[2] - seconds[1]))
    return found


class _Hooks:
    """Something to do before every operator that is a module, and before its gradients; and how long it took."""

    def __init__(self, module: torch.nn.Module, do: Callable[[], None]) -> None:
        self._do, self._active, self.seconds = do, False, 0.0
        for one in module.modules():
            if not list(one.children()):
                one.register_forward_pre_hook(lambda *_: self._before())
                one.register_forward_hook(lambda _, given, made: self._watch(made))

    @contextmanager
    def pushing(self) -> Generator[None]:
        self._active = True
        yield
        self._active = False

    def _before(self) -> None:
        if self._active:
            start = time.thread_time()
            self._do()
            self.seconds += time.thread_time() - start

    def _watch(self, made: Any) -> None:
        if isinstance(made, torch.Tensor) and made.requires_grad:
            made.register_hook(lambda _: self._before())


class _Step:
    """Both passes of a step: the optimizer has a probe of its own."""

    def __init__(self, scope: Scope, model: str, batch: int) -> None:
        self.module: Any = modules.build(model).to(scope.device)
        self._example = example = modules.example(model, batch)
        self._inputs = tuple(tensor.to(scope.device) for tensor in example.inputs)
        self._target = example.target.to(scope.device)

    def __call__(self) -> torch.Tensor:
        loss = self._forward()
        loss.backward()
        return loss

    def _forward(self) -> torch.Tensor:
        self.module.zero_grad(set_to_none=True)
        return self._example.loss(self.module(*self._inputs), self._target)

    def timed(self, hooks: _Hooks | None = None) -> tuple[float, float]:
        """Seconds of this thread for each pass, without those of hooks."""

        def own() -> float:
            return time.thread_time() - (hooks.seconds if hooks else 0.0)

        start = own()
        loss = self._forward()
        middle = own()
        loss.backward()
        return middle - start, own() - middle
