"""Pooling: kernels that compute an index for each element, bound by that rather than by bytes.

Cycles of a multiprocessor for an element of the larger image, from an H200 (PyTorch 2.11, studies/h200_kernels).
"""

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

OPERATORS: Final = ("pool",)

FORWARD: Final = 0.95
BACKWARD_MAXIMUM: Final = 2.8
BACKWARD_MEAN: Final = 4.3


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Cycles for each element of the input, or bytes if those take longer."""
    cost = action.cost
    launches = launches_of(cost, trainer.execution)
    stream = (cost.read + cost.written) / memory_rate(device)
    if trainer.execution == "eager":
        image = cost.read if action.part == "forward" else cost.written
        cycles = FORWARD if action.part == "forward" else where(cost.launches > 1, BACKWARD_MAXIMUM, BACKWARD_MEAN)
        stream = at_least(
            stream, image / activation_width(form) * cycles * cycle_seconds(device, activation_width(form))
        )
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
