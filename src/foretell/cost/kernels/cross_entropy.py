"""The loss over the vocabulary: passes over the logits, which 16-bit trainers make in fp32.

A trainer's `logit_bytes` has the cast to fp32, maximum, exponentials, sum and division in it; backward is what
`logit_passes` leaves. Where the logits are fp32 anyway the operator's own bytes hold.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, launches_of
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import at_least

OPERATORS: Final = ("cross_entropy",)

HALF: Final = 2  # bytes of a 16-bit number
FULL: Final = 4  # bytes of an fp32 number

READ_AGAIN: Final = 1.6
"""Forward passes in fp32 over those counted (read, written): logits are read for the maximum and sum and once more, and
the losses picked (11 sizes on an H200: 1.7, studies/h200_kernels)."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Bytes at the memory's rate."""
    n, cost, fusion = action.loops, action.cost, trainer.fusion
    moved = cost.read + cost.written
    if activation_width(form) <= HALF:
        logits = n["row"] * n["class"]
        passes, reads = (1.0, 1) if action.part == "forward" else (fusion.logit_passes - 1, 2)
        apart = (cost.read >= reads * FULL * logits) * (HALF + FULL)  # a cast to fp32 that the graph has as an operator
        moved = at_least(moved, logits * (fusion.logit_bytes * passes - apart))
    elif action.part == "forward":
        moved = moved * READ_AGAIN
    launches = launches_of(cost, trainer.execution)
    stream = moved / memory_rate(device)
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
