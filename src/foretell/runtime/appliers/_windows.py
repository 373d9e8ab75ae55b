# pyright: basic
"""Convolutions and pools over images in shares: they fetch the rows that their windows reach beyond the share."""

from __future__ import annotations

import functools
from collections.abc import Container, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from foretell.errors import BadInput
from foretell.runtime.appliers._cuts import Cuts
from foretell.runtime.appliers._halo import DIM, RowWindow, exchanged

CONVOLUTIONS: dict[type[nn.Module], Any] = {nn.Conv1d: F.conv1d, nn.Conv2d: F.conv2d, nn.Conv3d: F.conv3d}
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE_POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
SIZES = ("kernel_size", "stride", "padding", "dilation")
WINDOWS = (*CONVOLUTIONS, *MAX_POOLS, *AVERAGE_POOLS)


def walk(module: nn.Module, path: str, cuts: Cuts, read: Sequence[int], made: Sequence[int]) -> None:
    """Have a module walk over shares of what it reads: `read` and `made` are the shapes of the whole."""
    ways = len(made) - DIM
    windows: dict[int, tuple[RowWindow, dist.ProcessGroup]] = {}
    for dim, group in cuts.dims:
        kernel, stride, padding, dilation = (_each(getattr(module, name, 1), ways)[dim - DIM] for name in SIZES)
        windows[dim] = RowWindow(read[dim], made[dim], dilation * (kernel - 1) + 1, stride, padding), group
        _check(path, module, windows[dim][0])
    module.forward = functools.partial(_windowed, module, windows)


def _check(path: str, module: nn.Module, window: RowWindow) -> None:
    """Refuse what windows over shares cannot do yet."""
    if getattr(module, "padding_mode", "zeros") != "zeros" or getattr(module, "ceil_mode", False):
        raise BadInput(f"{path} pads or rounds in a way that does not run in shares yet", where="spatial")
    counts = getattr(module, "count_include_pad", True)
    if window.padding and (not counts or getattr(module, "divisor_override", None)):
        raise BadInput(f"{path} does not count its padding; that does not run in shares yet", where="spatial")


def _windowed(module: Any, windows: dict[int, tuple[RowWindow, dist.ProcessGroup]], x: torch.Tensor) -> torch.Tensor:
    """A convolution or pool over the rows that its windows reach; padding is put on by hand where the image ends.

    Dim by dim: what was fetched along one takes part in the next, corners come that way.
    """
    around = [0] * (2 * (x.dim() - DIM))
    for dim, (window, group) in windows.items():
        reach = window.reach(dist.get_rank(group), dist.get_world_size(group))
        x = exchanged(x, dim, window, group)
        last = 2 * (x.dim() - 1 - dim)  # torch pads from the last dim on
        around[last : last + 2] = max(0, -reach.first), max(0, reach.last - window.size)
    nothing = -torch.inf if isinstance(module, MAX_POOLS) else 0.0
    return _walked(module, F.pad(x, around, value=nothing) if any(around) else x, windows)


def _walked(module: Any, rows: torch.Tensor, cut: Container[int]) -> torch.Tensor:
    """The module's own step, without padding along dims in shares."""
    extents = rows.dim() - DIM
    padding = tuple(0 if DIM + at in cut else one for at, one in enumerate(_each(module.padding, extents)))
    for kind, function in CONVOLUTIONS.items():
        if isinstance(module, kind):
            return function(rows, module.weight, module.bias, module.stride, padding, module.dilation, module.groups)
    pools = (F.max_pool1d, F.max_pool2d, F.max_pool3d), (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    if isinstance(module, MAX_POOLS):
        return pools[0][extents - 1](rows, module.kernel_size, module.stride, padding, module.dilation)
    return pools[1][extents - 1](rows, module.kernel_size, module.stride, padding)


def _each(value: Any, extents: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * extents
