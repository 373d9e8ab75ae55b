# pyright: basic
"""Precision: the type of the module itself, TF32 products, autocast over fp32 weights, or master weights in fp32."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.runtime.appliers._master import LossScale, ScaledGradient, mastered, scaled
from foretell.runtime.subject import Subject, TorchOptimizer
from foretell.runtime.tasks import Loss

ORDER = 28
"""When layers are cut: whoever follows a module with symbols sees its class, and not what is around its forward."""

RUN = ("fp32", "tf32", "fp16", "bf16", "bf16:pure", "amp_bf16", "amp_fp16")
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def refusals(part: Precision, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.name not in RUN:
        why = f"+{part.name} does not run: processors have no products in eight bits or fewer, and torch no layers"
        yield why, " or ".join(f"+{name}" for name in RUN)


def apply(part: Precision, subject: Subject) -> None:
    """The module was built in the type of its weights already."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = part.name == "tf32"
    if part.format.autocast:
        for own in subject.parts:
            _autocast(own, subject)
    scale = LossScale() if part.format.loss_scaling else None
    if part.format.master:
        subject.rule = TorchOptimizer(mastered(subject.rule.kind, scale), subject.rule.arguments)
    elif scale is not None:
        subject.rule = TorchOptimizer(scaled(subject.rule.kind, scale), subject.rule.arguments)
    if scale is not None:
        subject.loss = functools.partial(_scaled, subject.loss, scale)


def _scaled(loss: Loss, scale: LossScale, outputs: Any, target: torch.Tensor) -> torch.Tensor:
    """The loss as it is, with gradients that small numbers of fp16 can hold."""
    return ScaledGradient.apply(loss(outputs, target), scale.now)


def casting(subject: Subject) -> AbstractContextManager[Any]:
    """Where products run in the type that the plan says."""
    found = subject.setting.plan.policy(Precision).format
    return torch.autocast(subject.device.type, TYPES.get(found.activation), enabled=found.autocast)


def _autocast(module: nn.Module, subject: Subject) -> None:
    inner = module.forward

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        with casting(subject):
            return inner(*inputs)

    module.forward = forward
