# pyright: basic
"""Offload: copies of the weights in host memory are updated there, or what a backward pass needs waits there, or the
weights themselves lie there and come for each use.

On a processor host memory is all there is: copies are made all the same, and what is saved lies where it should.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from foretell.plan.plan import policy_text
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data
from foretell.runtime.appliers._hosted import host
from foretell.runtime.appliers._master import Mastered, on_host
from foretell.runtime.subject import Subject, TorchOptimizer

ORDER = 32
"""When precision has said what is updated, and recomputation what is not saved."""


def refusals(part: Offload, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.weights and not part.optimizer:
        why = "+offload:weights alone does not run: torch updates weights where they lie, and keeps states beside them"
        yield why, "+offload:optimizer,weights"
    recompute = setting.plan.policy(Recompute)
    if part.weights and recompute.rule.together(1) and not shares_weights(setting):
        why = f"+offload:weights beside {policy_text(recompute)}: weights that came are gone when a layer runs again"
        yield f"{why}, which does not run yet", "dp:zero3, where FSDP2 brings them again, or +recompute:attention"


def apply(part: Offload, subject: Subject) -> None:
    if part.optimizer and not (part.weights and not issubclass(subject.rule.kind, Mastered)):
        subject.rule = TorchOptimizer(on_host(subject.rule.kind), subject.rule.arguments)
    if part.weights and not shares_weights(subject.setting):
        _weights_on_host(subject, part.activations)
    elif part.activations:
        for own in subject.parts:
            for module in (*(layer for _, layer in subject.layers(own)), own):
                _saved_on_host(module)


def shares_weights(setting: Setting) -> bool:
    """Whether FSDP2 has the weights, which brings them from host memory itself."""
    data = setting.plan.axis(Data)
    return data is not None and data.world > 1 and data.storage in ("zero2", "zero3")


def _weights_on_host(subject: Subject, activations: bool) -> None:
    known: set[nn.Parameter] = set()
    for own in subject.parts:
        for unit in (*(layer for _, layer in subject.layers(own)), own):
            host(unit, known, subject.device, activations)


def _saved_on_host(module: nn.Module) -> None:
    """What a module saves goes to host memory and comes back when it is read; weights stay where they are.

    A layer at a time: its weights are whole while it runs, and with them it is known what to leave alone.
    """
    inner = module.forward

    def forward(*inputs: Any) -> Any:
        weights = {_memory(weight) for weight in module.parameters() if not isinstance(weight, DTensor)}

        def away(saved: torch.Tensor) -> tuple[torch.device, torch.Tensor]:
            return saved.device, saved if _memory(saved) in weights else _on_host(saved)

        with torch.autograd.graph.saved_tensors_hooks(away, _back):
            return inner(*inputs)

    module.forward = forward


def _on_host(saved: torch.Tensor) -> torch.Tensor:
    """A copy in host memory; beside a GPU in pages that stay where they are, which its link reaches at full rate."""
    if not saved.is_cuda:
        return saved.to("cpu")
    return torch.empty_like(saved, device="cpu", pin_memory=True).copy_(saved)


def _memory(tensor: torch.Tensor) -> int:
    """What is the same of two tensors that lie in the same memory."""
    return tensor.untyped_storage()._cdata


def _back(packed: tuple[torch.device, torch.Tensor]) -> torch.Tensor:
    device, saved = packed
    return saved.to(device, non_blocking=True)
