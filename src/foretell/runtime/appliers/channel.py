# pyright: basic
"""Channel parallelism: each rank reads some of the channels of a layer's input; its outputs are summands."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from foretell.plan.strategies.channel import Channel
from foretell.runtime.appliers import _weighted
from foretell.runtime.appliers._beside_samples import entered
from foretell.runtime.appliers._sharing import OwnShare, Summed
from foretell.runtime.appliers._weighted import features, keep
from foretell.runtime.appliers.lora import seam
from foretell.runtime.subject import Subject

ORDER = _weighted.ORDER
refusals = _weighted.refusals


def apply(part: Channel, subject: Subject) -> None:
    _weighted.apply(part, subject, _cut)


def _cut(module: Any, group: dist.ProcessGroup, enters: bool) -> dict[str, int]:
    """The bias is added once, to the sum: every rank has it whole."""
    keep(module, "weight", 1, group)
    inner, dim = getattr(module, seam(module)), features(module)

    def forward(x: torch.Tensor) -> torch.Tensor:
        bias, module.bias = module.bias, None
        try:
            summand = inner(entered(x, group, dim) if enters else _share(x, dim, group))
        finally:
            module.bias = bias
        y = Summed.apply(summand, group)
        if bias is None:
            return y
        return y + bias.to(y.dtype).view(-1, *[1] * (y.dim() - 2 if dim == 1 else 0))  # a product's sum stays narrow

    setattr(module, seam(module), forward)
    return {"weight": 1}


def _share(x: Any, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's channels; layers that read the same tensor share them, so that its gradient is gathered once."""
    known = getattr(x, "_foretell_share", None)
    if known is None:
        known = x._foretell_share = OwnShare.apply(x, dim, group)
    return known
