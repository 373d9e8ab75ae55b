# pyright: basic
"""Frozen weights in 4 bits: two in a byte, each the nearest of sixteen values, with a scale for every 64.

The values are the quantiles of a normal distribution that QLoRA lists (Dettmers et al. 2023, appendix E). A weight is
widened for each product and again for its backward pass, as bitsandbytes does.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn

from foretell.model.adapters import adaptable
from foretell.plan.policies.base import Base
from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.runtime.appliers.lora import dense, is_adapted
from foretell.runtime.subject import Subject

ORDER = 13

GROUP: Final = 64
"""Weights that share a scale."""

SLICE: Final = 512
"""Groups that are widened at once: two arrays of 128 KiB besides the copy, which a processor's cache holds."""

VALUES: Final = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)

CUT: Final = ("tp", "filter", "channel")


def refusals(part: Base, setting: Setting) -> Iterator[tuple[str, str]]:
    if part.form and part.form != "nf4":
        yield f"+{part.form} is predicted, not run: only nf4 is packed here", "+nf4"
    for axis in setting.plan.axes:
        stored = STORAGES[getattr(axis, "storage", "replicated")]
        if axis.world > 1 and (axis.word in CUT or stored.gradients or getattr(axis, "experts", 1) > 1):
            yield f"{axis.word}{axis.ranks} cuts weights, and packed ones are not cut", "dp, dp:zero1 or pp"
    blocks = setting.graph.blocks
    if any(blocks[at].nodes[index].kind == "grouped_matmul" for at, index in adaptable(setting.graph)):
        yield f"experts of {setting.graph.name} are not packed", f"without +{part.form}"


def apply(part: Base, subject: Subject) -> None:
    names = dense(subject.setting.graph)
    for own in subject.parts:
        for name, module in list(own.named_modules()):
            if part.form and name in names:
                _pack(module)


def _pack(module: Any) -> None:
    """The weight of a dense layer as bytes and scales."""
    weight: torch.Tensor = module.weight
    packed, scales = packed_weight(weight)
    module.weight = nn.Parameter(packed, requires_grad=False)
    module.scales = nn.Parameter(scales, requires_grad=False)
    product = functools.partial(_product, module, weight.shape, weight.dtype)
    if is_adapted(module):
        module.base = product
    else:
        module.forward = product


def packed_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes of two weights each, and the largest of every 64."""
    flat = F.pad(weight.detach().float().flatten(), (0, -weight.numel() % GROUP)).view(-1, GROUP)
    scales = flat.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny)
    values = torch.tensor(VALUES, device=weight.device)
    middles = (values[1:] + values[:-1]) / 2
    codes = torch.bucketize(flat / scales[:, None], middles).to(torch.uint8).flatten()
    return codes[::2] << 4 | codes[1::2], scales


def widened_weight(packed: torch.Tensor, scales: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """The weight that the bytes mean. It is made slice by slice: an index and a value take 4 bytes each."""
    values = torch.tensor(VALUES, device=packed.device)
    wide = torch.empty(len(scales), GROUP, dtype=dtype, device=packed.device)
    slices = zip(packed.view(-1, GROUP // 2).split(SLICE), scales.split(SLICE), wide.split(SLICE), strict=True)
    for codes, scale, part in slices:
        indices = torch.stack((codes >> 4, codes & 15), 2).view(-1, GROUP).int()
        part.copy_(values[indices].mul_(scale[:, None]))
    return wide.flatten()[: shape.numel()].view(shape)


class _Product(torch.autograd.Function):
    """x W^T with W packed: only the packed weight is kept for the backward pass."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, module: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)  # else the product would cast what was widened once more
        context.of = module, shape, dtype
        return F.linear(x, widened_weight(module.weight, module.scales, shape, dtype), module.bias)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        module, shape, dtype = context.of
        return gradients[0] @ widened_weight(module.weight, module.scales, shape, dtype), None, None, None


def _product(module: Any, shape: torch.Size, dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return _Product.apply(x, module, shape, dtype)  # type: ignore[return-value]
