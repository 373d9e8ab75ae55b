"""What one part of one operator costs on a device: one file a family of operators.

A family names the operators it prices (`OPERATORS`, their tags) and has a function `price`. Operators that no family
names are memory-bound: `traffic.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

from foretell.cost.kernels._chains import chains
from foretell.cost.kernels._measured import corrected, corrected_update, profiled, profiled_update, timed
from foretell.cost.kernels._price import ORIGINS, KernelPrice
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute, Update
from foretell.registry import OpenSet

__all__ = ["FAMILIES", "ORIGINS", "KernelPrice", "chains", "families", "kernel_seconds", "timed", "update_seconds"]

FAMILIES = OpenSet(__name__, "kernel family")

Pricing: TypeAlias = Callable[[Compute, Device, Format, Trainer], KernelPrice]


@functools.cache
def families() -> dict[str, Pricing]:
    """The function that prices an operator, by the operator's tag."""
    return {operator: FAMILIES[name].price for name in FAMILIES for operator in FAMILIES[name].OPERATORS}


@functools.cache
def _family(operator: str) -> Pricing:
    found = families()
    return found[operator] if operator in found else FAMILIES["traffic"].price


def kernel_seconds(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Seconds and launches of one part of one operator on one device.

    Sizes and costs may be arrays: then so are the figures of the price, each digit the same as of one size alone.
    """
    price = _family(action.operator)(action, device, form, trainer)
    price = corrected(price, action, device, form, trainer) if device.measured else price
    return profiled(price, action, device) if device.profiled else price


def update_seconds(action: Update, device: Device, form: Format) -> KernelPrice:
    """The same for the optimizer's step."""
    price = FAMILIES["optimizer"].update(action, device, form)
    price = corrected_update(price, action, device, form) if device.measured else price
    return profiled_update(price, device) if device.profiled else price
