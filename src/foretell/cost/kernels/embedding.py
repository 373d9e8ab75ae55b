"""Rows picked by an index: memory gives whole sectors, so that short rows cost more than their bytes."""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, launches_of, plain
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import at_least, ceil_div

OPERATORS: Final = ("embedding", "gather", "scatter_add")

SECTOR: Final = 32
"""Bytes that a device reads or writes at least (CUDA C++ best practices guide: coalesced access)."""

ADD_CYCLES: Final = {"embedding weight_gradient": 3.75, "gather input_gradient": 2.02, "scatter_add forward": 0.93}
"""Cycles of a multiprocessor to add an element of 16 bits to its row, zeros before it included: 8,192 rows of a table
(studies/h200_kernels), `index_add_` (which is the gradient of `index_select`) and `scatter_add_` of 2,048 to 524,288
rows (studies/h200_experts_and_context), on an H200. Each element is added by an instruction of its own."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Bytes in whole sectors at the memory's rate."""
    n, cost = action.loops, action.cost
    picked = n["row"] * ceil_div(n["feature"] * activation_width(form), SECTOR) * SECTOR
    moved = at_least(cost.read + cost.written, picked)
    launches = launches_of(cost, trainer.execution)
    stream = moved / memory_rate(device)
    added = ADD_CYCLES.get(f"{action.operator} {action.part}", 0.0)
    if added and plain(trainer, device):
        cycles = n["row"] * n["feature"] * added * cycle_seconds(device, activation_width(form))
        stream = stream + cycles if action.operator == "embedding" else at_least(stream, cycles)
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
