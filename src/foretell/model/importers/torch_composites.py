# pyright: basic
"""Catching calls before PyTorch takes them apart: fused functions, autograd functions, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

from foretell.model.importers.torch_fused import ATTENTION, CALLS, FUNCTIONS, Fused, Given, laid_out
from foretell.model.importers.torch_tape import Tape, next_step

CHECKPOINTED = "the module recomputes activations itself; this graph keeps them, a plan can ask for +recompute"

_APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


class _Whole(torch.autograd.Function):
    """Runs a function as a single step of autograd; its backward pass only has the right shapes."""

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Any], *tensors: torch.Tensor) -> Any:
        ctx.shapes = [(tensor.shape, tensor.dtype) for tensor in tensors]
        return run()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        made = (torch.empty(shape, dtype=dtype) for shape, dtype in ctx.shapes)
        needed = ctx.needs_input_grad[1:]
        return None, *(gradient if need else None for gradient, need in zip(made, needed, strict=True))


class Composites(TorchFunctionMode):
    """Catches fused functions, and every autograd.Function."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of a function of torch."""
        fused = CALLS.get(func)
        if fused is None or self._tape.paused:
            return func(*args, **kwargs)
        given = {**dict(zip(fused.arguments, args, strict=False)), **kwargs}
        if not fused.fits(given):
            return func(*args, **kwargs)
        if fused is ATTENTION:
            return self._whole(fused, given, lambda: laid_out(func(*args, **kwargs), given))
        return self._whole(fused, given, lambda: func(*args, **kwargs))

    def function(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of an autograd.Function."""
        if self._tape.paused:
            return _APPLY(cls, *args, **kwargs)
        fused = FUNCTIONS.get(f"{cls.__module__}.{cls.__qualname__}")
        if fused is not None:
            given = dict(zip(fused.arguments, args, strict=False))
            return self._whole(fused, given, lambda: _APPLY(cls, *args, **kwargs))
        with self._tape.inside(cls.__name__):
            return _APPLY(cls, *args, **kwargs)

    def checkpoint(self) -> None:
        """One call that would recompute: said once."""
        if CHECKPOINTED not in self._tape.notes:
            self._tape.notes.append(CHECKPOINTED)

    def _whole(self, fused: Fused, given: Given, run: Callable[[], Any]) -> Any:
        """Run a function as one step, and write it down as one operator."""
        tensors: list[torch.Tensor] = []
        _collect(given.values(), tensors)
        step = next_step()
        with self._tape.pause():
            result = _APPLY(_Whole, run, *tensors)
        outputs: list[torch.Tensor] = []
        _collect((result,), outputs)
        with self._tape.one_step(step):
            fused.write(self._tape, given, outputs)
        return result


def _collect(values: Any, found: list[torch.Tensor]) -> None:
    """All tensors, each once."""
    for value in values:
        if isinstance(value, torch.Tensor):
            if all(value is not other for other in found):
                found.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, found)


@contextmanager
def caught(composites: Composites) -> Iterator[None]:
    """Inside, the functions are caught however they are reached.

    The mode sees calls from outside of torch; inside torch's own functions (multi-head attention
    calls attention) only replaced names help.
    """
    with composites, _replaced(_replacements(composites)):
        yield


def _replacements(composites: Composites) -> list[tuple[Any, str, Any]]:
    """(where, name, what instead)."""
    checkpoint: Any = torch.utils.checkpoint
    names = [(F, name) for name in ("scaled_dot_product_attention", "dropout", "rms_norm", "cross_entropy")]
    found: list[tuple[Any, str, Any]] = [
        (place, name, _through(composites, getattr(place, name))) for place, name in names
    ]
    found.append((torch.autograd.Function, "apply", classmethod(lambda cls, *a, **k: composites.function(cls, a, k))))
    found.append((checkpoint, "_checkpoint_without_reentrant_generator", _no_checkpoint(composites)))
    found.append((checkpoint, "CheckpointFunction", _no_reentrant_checkpoint(composites)))
    return [(place, name, instead) for place, name, instead in found if hasattr(place, name)]


@contextmanager
def _replaced(replacements: list[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(place, name, vars(place)[name]) for place, name, _ in replacements]
    try:
        for place, name, instead in replacements:
            setattr(place, name, instead)
        yield
    finally:
        for place, name, original in before:
            setattr(place, name, original)


def _through(composites: Composites, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return composites.call(function, args, kwargs)

    return call


def _no_checkpoint(composites: Composites) -> Callable[..., Iterator[None]]:
    """Recomputation is a choice of the plan, so the model is traced without it."""

    def generator(*args: Any, **kwargs: Any) -> Iterator[None]:
        composites.checkpoint()
        yield

    return generator


def _no_reentrant_checkpoint(composites: Composites) -> type:
    class Passing:
        @staticmethod
        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            composites.checkpoint()
            return function(*args)

    return Passing
