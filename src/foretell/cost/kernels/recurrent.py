"""Recurrent layers: one product for the inputs of all steps, then a small one a step, one after the other."""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, launches_of
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.kernels._tiles import product_seconds, units
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity

CALL: Final = "recurrent_call"
"""All steps in one call of a library."""

OPERATORS: Final = ("recurrent", CALL)


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """The products in tiles; the traffic of all steps, weights again at each; a launch for each kernel of each step.

    In a library's call the host starts nothing but that call, and its kernels follow one another on the device: those
    of two layers are not taken to overlap.
    """
    n, cost = action.loops, action.cost
    by = units(device, form.other_kernels)
    sample, steps, gates = n["sample"], n["sequence"], n["gate"] * n["out"]
    if action.part == "forward":
        matrix = product_seconds(sample * steps, gates, n["in"], 1, by)
        matrix = matrix + steps * product_seconds(sample, gates, n["unit"], 1, by)
    elif action.part == "input_gradient":
        matrix = product_seconds(sample * steps, n["in"], gates, 1, by)
        matrix = matrix + steps * product_seconds(sample, n["unit"], gates, 1, by)
    else:  # all steps are known by then: one product each for both weights
        matrix = product_seconds(n["in"], gates, sample * steps, 1, by)
        matrix = matrix + product_seconds(n["unit"], gates, sample * steps, 1, by)
    moved = (cost.read + cost.written) / memory_rate(device)
    if action.operator == CALL:
        kernels = cost.fused if action.part != "weight_gradient" else cost.launches
        again = _read_again(action, device, form) / memory_rate(device)
        return KernelPrice(matrix, again, moved, device.launch_seconds * kernels, cost.launches, by.provenance)
    launches = launches_of(cost, trainer.execution)
    return KernelPrice(matrix, moved, 0.0, device.launch_seconds * launches, launches, by.provenance)


def _read_again(action: Compute, device: Device, form: Format) -> Quantity:
    """Bytes of weights that steps after the first read from memory: none where a cache has room for them."""
    n = action.loops
    size = n["gate"] * n["out"] * n["unit"] * activation_width(form)
    steps = n["sequence"] - 1 if action.part != "weight_gradient" else 0
    return size * steps * (size > device.cache_bytes)
