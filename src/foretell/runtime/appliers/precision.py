# pyright: basic
"""Precision: the type of the module itself, TF32 products, autocast over fp32 weights, or master weights in fp32."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.runtime.appliers._master import Scale, Times, mastered
from foretell.runtime.subject import Rule, Subject
from foretell.runtime.tasks import Loss

ORDER = 5
RUN = ("fp32", "tf32", "fp16", "bf16", "bf16:pure", "amp_bf16")


def refusals(part: Precision, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.name not in RUN:
        why = f"+{part.name} does not run: processors have no products in eight bits or fewer, and torch no layers"
        yield why, " or ".join(f"+{name}" for name in RUN)


def apply(part: Precision, subject: Subject) -> None:
    """The module was built in the type of its weights already."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = part.name == "tf32"
    if part.format.autocast:
        for own in subject.parts:
            _autocast(own, subject.device.type)
    if part.format.master:
        scale = Scale() if part.format.loss_scaling else None
        subject.rule = Rule(mastered(subject.rule.kind, scale), subject.rule.arguments)
        if scale is not None:
            subject.loss = functools.partial(_scaled, subject.loss, scale)


def _scaled(loss: Loss, scale: Scale, outputs: Any, target: torch.Tensor) -> torch.Tensor:
    """The loss as it is, with gradients that small numbers of fp16 can hold."""
    return Times.apply(loss(outputs, target), scale.now)


def _autocast(module: nn.Module, device: str) -> None:
    inner = module.forward

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return inner(*inputs)

    module.forward = forward
