# pyright: basic
"""Wide adapters: the thin matrices become fp32, what a layer reads is cast for them, and their sum is cast back."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from foretell.plan.policies.wide_adapters import WideAdapters
from foretell.plan.setting import Setting
from foretell.runtime.appliers.lora import is_adapted
from foretell.runtime.subject import Subject

ORDER = 14


def refusals(part: WideAdapters, setting: Setting) -> Iterator[tuple[str, str]]:
    return iter(())


def apply(part: WideAdapters, subject: Subject) -> None:
    for own in subject.parts:
        for module in list(own.modules()):
            if part.wide and is_adapted(module):
                _widen(module)


def _widen(module: Any) -> None:
    if module.lora_a.weight.dtype not in (torch.bfloat16, torch.float16):
        return  # weights that are wide themselves
    for thin in (module.lora_a, module.lora_b):
        thin.weight = nn.Parameter(thin.weight.detach().float())
    module.forward = functools.partial(_widened, module)


def _widened(module: Any, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
    made = module.base(x, *more)
    return (made + module.lora_b(module.lora_a(x.float(), *more), *more)).to(made.dtype)
