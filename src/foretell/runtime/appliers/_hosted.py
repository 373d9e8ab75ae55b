# pyright: basic
"""Weights that lie in host memory: a unit's come for each of its passes, and nothing of them stays on the device.

Autograd sends gradients to where a weight lies. What a forward pass saves of a weight that came is not kept: it comes
once more in the backward pass (as in ZeRO-Infinity, Rajbhandari et al. 2021).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn


class _Saved(NamedTuple):
    """A view of a weight that is fetched when it is read."""

    weight: torch.Tensor
    size: torch.Size
    stride: tuple[int, ...]
    first: Any


def host(unit: nn.Module, known: set[nn.Parameter], device: torch.device, activations: bool) -> None:
    """Move the weights of a unit to host memory, but for those that are there already. What else its passes save goes
    there too, if wanted."""
    own = {weight for weight in unit.parameters() if weight not in known}
    known |= own
    for weight in own:
        weight.data = weight.data.to("cpu")
    places = [(module, name) for module, name, weight in _weights(unit) if weight in own]
    inner = unit.forward

    def forward(*inputs: Any, **more: Any) -> Any:
        came = {weight: weight.to(device, copy=True) for weight in own}
        homes = {_memory(copy): weight for weight, copy in came.items()}

        def away(saved: torch.Tensor) -> torch.Tensor | _Saved:
            home = homes.get(_memory(saved))
            if home is None:
                return saved.to("cpu") if activations else saved
            return _Saved(home, saved.size(), saved.stride(), saved.storage_offset())

        def back(packed: torch.Tensor | _Saved) -> torch.Tensor:
            if not isinstance(packed, _Saved):
                return packed.to(device) if activations else packed
            return packed.weight.detach().to(device, copy=True).as_strided(*packed[1:])

        kept = [(module, name, module._parameters[name]) for module, name in places]
        for module, name, weight in kept:
            module._parameters[name] = came[weight]  # type: ignore[index]
        try:
            with torch.autograd.graph.saved_tensors_hooks(away, back):
                return inner(*inputs, **more)
        finally:
            for module, name, weight in kept:
                module._parameters[name] = weight

    unit.forward = forward


def _weights(unit: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """Every place where a weight is read: of one that two modules share, both."""
    for module in unit.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                yield module, name, weight


def _memory(tensor: torch.Tensor) -> int:
    """What is the same of two tensors that lie in the same memory."""
    return tensor.untyped_storage()._cdata
