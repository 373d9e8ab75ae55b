"""Scans: the products inside chunks and with states, in tiles, beside the traffic of what goes in and comes out.

No scan was timed: the products are taken to reach what products of such sizes reach, which fused kernels whose
operands lie in registers may beat or miss.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import launches_of
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.kernels._tiles import product_seconds, units
from foretell.hardware.cluster import Device
from foretell.model.operators.scan import Scan
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import ceil_div

OPERATORS: Final = ("scan",)


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Each kind of product as often as it runs; the backward pass has both gradients and makes two kinds again."""
    n, cost = action.loops, action.cost
    by = units(device, form.other_kernels)
    stream = (cost.read + cost.written) / memory_rate(device)
    launches = launches_of(cost, trainer.execution)
    matrix = 0.0 * stream
    if action.part != "weight_gradient":
        length = Scan().length(n)
        chunks = n["sample"] * n["group"] * ceil_div(n["sequence"], length)
        heads = chunks * n["share"]
        scores = product_seconds(length, length, n["state"], chunks, by)
        mixed = product_seconds(length, n["feature"], length, heads, by)
        state = product_seconds(length, n["feature"], n["state"], heads, by)
        state = state + product_seconds(n["state"], n["feature"], length, heads, by)
        forward = scores + mixed + state
        matrix = forward if action.part == "forward" else 3 * scores + 2 * mixed + 2.5 * state
    return KernelPrice(matrix, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
