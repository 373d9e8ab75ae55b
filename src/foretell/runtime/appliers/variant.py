# pyright: basic
"""DoRA: what a layer and its adapter make is scaled so that columns of the merged weight have trained magnitudes.

Lengths of columns are found anew in each forward pass and have no gradient. rsLoRA is another number in front of the
product of an adapter, which runs here without one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from foretell.model.adapters import MAGNITUDE
from foretell.plan.policies.base import Base
from foretell.plan.policies.variant import Variant
from foretell.plan.setting import Setting
from foretell.runtime.appliers.lora import is_adapted
from foretell.runtime.subject import Subject

ORDER = 15


def refusals(part: Variant, setting: Setting) -> Iterator[tuple[str, str]]:
    if "dora" in part.how and setting.plan.policy(Base).form:
        yield "lengths of packed weights are predicted, not run", "+dora without a base in few bits"


def apply(part: Variant, subject: Subject) -> None:
    if "dora" not in part.how:
        return
    for own in subject.parts:
        for module in list(own.modules()):
            if is_adapted(module):
                _decompose(module)


def _decompose(module: Any) -> None:
    wide = module.lora_a.weight.dtype
    magnitude = torch.linalg.norm(module.weight.detach().to(wide), dim=1)
    setattr(module, MAGNITUDE, _Magnitude(magnitude))
    module.forward = functools.partial(_decomposed, module)


class _Magnitude(nn.Module):
    """One number for each column, under the name that PEFT has for it."""

    def __init__(self, start: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start)


def _decomposed(module: Any, x: torch.Tensor) -> torch.Tensor:
    made, wide = module.base(x), module.lora_a.weight.dtype
    read = x.to(wide)
    factor = getattr(module, MAGNITUDE).weight / _lengths(module, wide)
    plain = made if module.bias is None else made - module.bias
    adapter = factor * module.lora_b(module.lora_a(read))
    return (made + (factor - 1) * plain + adapter).to(made.dtype)


@torch.no_grad()
def _lengths(module: Any, wide: torch.dtype) -> torch.Tensor:
    """PEFT sends an identity matrix through both, where weights in shares are gathered."""
    basis = torch.eye(module.in_features, device=module.weight.device, dtype=wide)
    return torch.linalg.norm(module.weight.to(wide) + module.lora_b(module.lora_a(basis)).T, dim=1)
