"""Rows picked by an index: memory gives whole sectors, so that short rows cost more than their bytes."""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, launches_of
from foretell.cost.kernels._price import Price
from foretell.cost.kernels._reached import memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import ceil_div

OPERATORS: Final = ("embedding", "gather", "scatter_add")

SECTOR: Final = 32
"""Bytes that a device reads or writes at least (CUDA C++ best practices guide: coalesced access)."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> Price:
    """Bytes in whole sectors at the memory's rate."""
    cost = action.cost
    row = action.loops["feature"] * activation_width(form)
    moved = (cost.read + cost.written) * (ceil_div(row, SECTOR) * SECTOR / row)
    launches = launches_of(cost, trainer.execution)
    stream = moved / memory_rate(device)
    return Price(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
