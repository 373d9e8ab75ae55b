"""What one part of one operator costs on a device: one file a family of operators.

A family names the operators it prices (`OPERATORS`, their tags) and has a function `price`; also `arithmetic` where its
kernels make other FLOPs than are counted, and `unit_rate` where they run on other units than the plan's precision has.
Operators that no family names are memory-bound: `traffic.py`.
"""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from foretell.cost.kernels._chains import chains
from foretell.cost.kernels._measured import corrected, corrected_update, profiled, profiled_update, timed
from foretell.cost.kernels._price import ORIGINS, KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute, Update
from foretell.registry import OpenSet
from foretell.units import Quantity, at_least

__all__ = [
    "FAMILIES",
    "ORIGINS",
    "KernelPrice",
    "arithmetic",
    "chains",
    "families",
    "kernel_seconds",
    "memory_rate",
    "timed",
    "unit_rate",
    "update_seconds",
]

FAMILIES = OpenSet(__name__, "kernel family")


@functools.cache
def families() -> dict[str, str]:
    """The family that prices an operator, by the operator's tag."""
    return {operator: name for name in FAMILIES for operator in FAMILIES[name].OPERATORS}


@functools.cache
def _module(operator: str) -> Any:
    return FAMILIES[families().get(operator, "traffic")]


def kernel_seconds(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Seconds and launches of one part of one operator on one device.

    Sizes and costs may be arrays: then so are the figures of the price, each digit the same as of one size alone.
    """
    price: KernelPrice = _module(action.operator).price(action, device, form, trainer)
    if not device.measured and not device.profiled and device.pace == 1:
        return price
    price = corrected(price, action, device, form, trainer) if device.measured else price
    price = profiled(price, action, device) if device.profiled else price
    price = price.slower(device.pace) if device.pace != 1 else price
    least = arithmetic(action, device, form) / unit_rate(action, device, form)
    return msgspec.structs.replace(price, matrix=at_least(price.matrix, least))


def arithmetic(action: Compute, device: Device, form: Format) -> Quantity:
    """FLOPs that the kernels of one part of one operator make: fewer than are counted where they skip what is masked,
    or where their algorithm needs fewer."""
    own = getattr(_module(action.operator), "arithmetic", None)
    return own(action, device, form) if own else action.cost.matrix * action.density


def unit_rate(action: Compute, device: Device, form: Format) -> float:
    """flop/s of the units that they run on, at their peak: no measurement makes them faster."""
    own = getattr(_module(action.operator), "unit_rate", None)
    return own(device, form) if own else device.matrix_rate(form.kernels)


def update_seconds(action: Update, device: Device, form: Format) -> KernelPrice:
    """The same for the optimizer's step."""
    price = FAMILIES["optimizer"].update(action, device, form)
    price = corrected_update(price, action, device, form) if device.measured else price
    price = profiled_update(price, device) if device.profiled else price
    return price.slower(device.pace) if device.pace != 1 else price
