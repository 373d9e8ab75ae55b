"""Softmax over rows: one pass forward; backward PyTorch first multiplies gradient and output in a kernel of its own."""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, launches_of, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import at_least

OPERATORS: Final = ("softmax",)

CYCLES: Final = 0.4
LONG_CYCLES: Final = 0.75
"""Of a multiprocessor for an element: 16-bit rows of up to 1,024, which a warp holds, and longer ones, which are read
again, on an H200 (studies/h200_kernels)."""
HELD: Final = 1024


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Bytes, or cycles for each element if those take longer."""
    cost = action.cost
    eager_backward = action.part != "forward" and trainer.execution == "eager"
    kernels = 2 if eager_backward else 1
    cycles = where((action.loops["class"] > HELD) & (action.part == "forward"), LONG_CYCLES, CYCLES)
    stream = at_least(
        (cost.read + cost.written) / memory_rate(device),
        cost.work * cycles * cycle_seconds(device, activation_width(form)),
    )
    stream = stream * kernels
    launches = launches_of(cost, trainer.execution) * kernels
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
