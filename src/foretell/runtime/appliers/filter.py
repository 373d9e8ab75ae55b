# pyright: basic
"""Filter parallelism: each rank has some filters of a layer; outputs are gathered, gradients of inputs summed."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from foretell.plan.strategies.filter import Filter
from foretell.runtime.appliers import _weighted
from foretell.runtime.appliers._beside_samples import entered
from foretell.runtime.appliers._sharing import Copied, Gathered
from foretell.runtime.appliers._weighted import features, keep
from foretell.runtime.appliers.lora import seam
from foretell.runtime.subject import Subject

ORDER = _weighted.ORDER
refusals = _weighted.refusals


def apply(part: Filter, subject: Subject) -> None:
    _weighted.apply(part, subject, _cut)


def _cut(module: Any, group: dist.ProcessGroup, enters: bool) -> dict[str, int]:
    size = module.weight.shape[0]
    names = [name for name in ("weight", "bias") if getattr(module, name) is not None]
    for name in names:
        keep(module, name, 0, group)
    inner = getattr(module, seam(module))

    def forward(x: torch.Tensor) -> torch.Tensor:
        whole = entered(x, group) if enters else Copied.apply(x, group)
        return Gathered.apply(inner(whole), features(module), group, size)

    setattr(module, seam(module), forward)
    return dict.fromkeys(names, 0)
