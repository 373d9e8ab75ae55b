# pyright: basic
"""Modules without memory: parameters that are shapes only."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


def mode_of(module: Any) -> FakeTensorMode:
    """The fake mode that a module was built in, or a new one."""
    if isinstance(module, torch.nn.Module):
        for tensor in (*module.parameters(), *module.buffers()):
            if isinstance(tensor, FakeTensor):
                return tensor.fake_mode
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def building() -> Iterator[None]:
    """Inside, programs that build modules for real may build them with fake tensors too."""
    future = torch.__future__
    before = future.get_overwrite_module_params_on_conversion()
    # `module.to(dtype)` makes new parameters: fake ones cannot be changed in place
    future.set_overwrite_module_params_on_conversion(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # deepcopy does
            yield
    finally:
        future.set_overwrite_module_params_on_conversion(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, torch does not log what it raises as well."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def as_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> torch.Tensor:
    """An input as a shape; one that is fake already stays itself."""
    if isinstance(tensor, FakeTensor) and tensor.fake_mode is mode:
        return tensor
    return _shape_of(tensor).requires_grad_(tensor.requires_grad)


def _shape_of(tensor: torch.Tensor) -> torch.Tensor:
    strides = tensor.stride() if tensor.layout is torch.strided else torch.empty(tensor.shape).stride()
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="cpu")


@contextmanager
def faked(module: torch.nn.Module) -> Iterator[None]:
    """Inside (and inside a fake mode), the module has shapes for weights and is in training.

    All tensors are new, fake ones too: copies of fake tensors do not know their own memory. After
    it the module is as it was.
    """
    before: list[tuple[dict[str, Any], str, Any]] = []
    known: dict[int, Any] = {}
    training = [(part, part.training) for part in module.modules()]
    try:
        for part in module.modules():
            for place in (part._parameters, part._buffers):
                for name, tensor in place.items():
                    if tensor is None:
                        continue
                    before.append((place, name, tensor))
                    if id(tensor) not in known:
                        shape = _shape_of(tensor)
                        weight = isinstance(tensor, torch.nn.Parameter)
                        known[id(tensor)] = torch.nn.Parameter(shape, tensor.requires_grad) if weight else shape
                    place[name] = known[id(tensor)]
        if not module.training:
            module.train()
        yield
    finally:
        for place, name, tensor in before:
            place[name] = tensor
        for part, was in training:
            part.training = was
