# pyright: basic
"""Precision: the type of the module itself, TF32 products, or autocast over fp32 weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.runtime.subject import Subject

ORDER = 5
RUN = ("fp32", "tf32", "bf16:pure", "amp_bf16")


def refusals(part: Precision, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.name not in RUN:
        yield f"+{part.name} does not run yet", " or ".join(f"+{name}" for name in RUN)


def apply(part: Precision, subject: Subject) -> None:
    """The module was built in the type of its weights already."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = part.name == "tf32"
    if part.format.autocast:
        for own in subject.parts:
            _autocast(own, subject.device.type)


def _autocast(module: nn.Module, device: str) -> None:
    inner = module.forward

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            return inner(*inputs)

    module.forward = forward
