# pyright: basic
"""Master weights: layers read 16 bits, and an optimizer updates a copy in fp32, so that small updates are not lost.

With fp16 gradients are scaled too (Micikevicius et al. 2018): a step whose gradients are not finite anywhere is left
out, and the scale is halved; after many good ones it is doubled.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from foretell.runtime.optimizer import marked_as

PATIENCE = 2000
"""Good steps after which a scale is doubled: that of torch's own."""


class LossScale:
    """By how much gradients are larger than they are."""

    def __init__(self, now: float = 2.0**16) -> None:
        self.now, self.good = now, 0

    def is_sound(self, gradients: list[torch.Tensor]) -> bool:
        """Whether all gradients of all ranks are finite; the scale is adjusted for the next step."""
        bad = torch.zeros(1, dtype=torch.float32, device=gradients[0].device if gradients else "cpu")
        for gradient in gradients:
            bad += (~_local(gradient).isfinite()).any()
        if dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        if bad.item():
            self.now, self.good = self.now / 2, 0
            return False
        self.good += 1
        if self.good % PATIENCE == 0:
            self.now *= 2
        return True


class ScaledGradient(torch.autograd.Function):
    """The same values, and so many times their gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, times: float) -> torch.Tensor:
        ctx.times = times
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient * ctx.times, None


class Mastered(torch.optim.Optimizer):
    """An optimizer over copies of the weights that it is given: in fp32, in host memory, or both."""

    kind: ClassVar[type[torch.optim.Optimizer]]
    scale: ClassVar[LossScale | None] = None
    like: ClassVar[dict[str, Any]] = {}  # the type of copies and their device, where they are not the weights' own
    more: ClassVar[dict[str, Any]] = {}  # arguments that the inner one has besides
    together: ClassVar[bool] = False  # whether all gradients have copies at once

    def __init__(self, params: Any, **arguments: Any) -> None:
        super().__init__(params, arguments)
        self.weights = [weight for group in self.param_groups for weight in group["params"]]
        self.masters = self._copies()
        on_gpu = _has_fused(self.kind) and all(one.is_cuda for one in self.masters)
        self.inner = self.kind(self.masters, **arguments, **({"fused": True} if on_gpu else {}), **self.more)

    def _copies(self) -> list[torch.Tensor]:
        copies = (_local(weight.detach()).to(**self.like, copy=True) for weight in self.weights)
        return [marked_as(weight, copy) for weight, copy in zip(self.weights, copies, strict=True)]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        scale = self.scale
        by = scale.now if scale is not None else 1.0
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        if scale is not None and not scale.is_sound(gradients):
            return
        for inner, outer in zip(self.inner.param_groups, self.param_groups, strict=True):
            inner["lr"] = outer["lr"]  # whoever warms up turns ours
        for own in [slice(None)] if self.together else _runs(self.masters):
            self._fetch(own, by)
            self.inner.step()  # it leaves those alone that have no gradient
            self._hand_back(own)

    def _fetch(self, own: slice, by: float) -> None:
        """Gradients come to some of the copies."""
        for weight, master in zip(self.weights[own], self.masters[own], strict=True):
            master.grad = None if weight.grad is None else _local(weight.grad).to(**self.like, copy=True)
            if by != 1.0 and master.grad is not None:
                master.grad.div_(by)

    def _hand_back(self, own: slice) -> None:
        for weight, master in zip(self.weights[own], self.masters[own], strict=True):
            _local(weight).copy_(master)
            master.grad = None


def _runs(masters: list[torch.Tensor]) -> Iterator[slice]:
    """Weights one after the other, as many as take no more than the largest takes alone: wide gradients of all would
    take as much again as their masters."""
    most = max((one.numel() for one in masters), default=0)
    begin, held = 0, 0
    for at, one in enumerate(masters):
        if held and held + one.numel() > most:
            yield slice(begin, at)
            begin, held = at, 0
        held += one.numel()
    yield slice(begin, len(masters))


class OnHost(Mastered):
    """The same in host memory. Beside a GPU copies and their gradients lie in pages that stay where they are, so that
    they come and go at the rate of the link (pageable memory is copied once more on the way)."""

    together = True  # they have rooms in host memory, and come without a wait between them

    def _copies(self) -> list[torch.Tensor]:
        found = super()._copies()
        self.gpu = any(weight.is_cuda for weight in self.weights)
        if self.gpu:
            found = [marked_as(one, one.pin_memory()) for one in found]
            self.rooms = [torch.empty_like(one, pin_memory=True) for one in found]
        return found

    def _fetch(self, own: slice, by: float) -> None:
        if not self.gpu:
            super()._fetch(own, by)
            return
        for weight, master, room in zip(self.weights, self.masters, self.rooms, strict=True):
            master.grad = None if weight.grad is None else room.copy_(_local(weight.grad), non_blocking=True)
        torch.cuda.synchronize()  # the host reads them
        for room in self.rooms if by != 1.0 else ():
            room.div_(by)

    def _hand_back(self, own: slice) -> None:
        if not self.gpu:
            super()._hand_back(own)
            return
        for weight, master in zip(self.weights, self.masters, strict=True):
            _local(weight).copy_(master, non_blocking=True)
        torch.cuda.synchronize()  # before the next update of the copies; passes could begin earlier


def _has_fused(kind: type[torch.optim.Optimizer]) -> bool:
    """Whether torch has one kernel for it on a processor: it reads and writes everything once, on all threads."""
    return "fused" in inspect.signature(kind).parameters


def mastered(kind: type[torch.optim.Optimizer], scale: LossScale | None) -> type[Mastered]:
    """An optimizer of this kind over copies in fp32."""
    return type("InFull", (Mastered,), {"kind": kind, "scale": scale, "like": {"dtype": torch.float32}})


def scaled(kind: type[torch.optim.Optimizer], scale: LossScale) -> type[torch.optim.Optimizer]:
    """An optimizer of this kind over the weights themselves, whose gradients are scaled (automatic mixed precision)."""

    class Scaled(kind):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            by = scale.now
            weights = (weight for group in self.param_groups for weight in group["params"])
            gradients = [_local(weight.grad) for weight in weights if weight.grad is not None]
            if scale.is_sound(gradients):
                for gradient in gradients:
                    gradient.div_(by)
                super().step()

    return Scaled


def on_host(kind: type[torch.optim.Optimizer]) -> type[Mastered]:
    """An optimizer of this kind whose copies and states lie in host memory; copies that it has already move there."""
    if issubclass(kind, Mastered):
        given = {"kind": kind.kind, "scale": kind.scale, "like": {**kind.like, "device": "cpu"}}
    else:
        given = {"kind": kind, "like": {"device": "cpu"}}
    more = {"fused": True} if _has_fused(given["kind"]) else {}
    return type("OnHost", (OnHost,), {**given, "more": more})


def _local(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient
