"""Memory-bound operators: all that is not a product. They cost their bytes, or their instructions if that is more.

A trainer's own layers can fuse what stands between the products: `hidden_passes` says how often its layer reads or
writes the hidden tensor in the forward pass. The graph's plain layer does so ten times (two norms, a read and a write
each; two sums, two reads and a write each), so such operators have the ratio of the two in bytes. With ten, every
operator is a kernel of its own, at the rates that such kernels were measured at.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, hidden_passes, launches_of, plain
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.program.casts import PLAIN_PASSES
from foretell.units import at_least

FUSIBLE: Final = ("elementwise", "normalize", "dropout", "rotary", "broadcast")
OPERATORS: Final = ("elementwise", "dropout", "rotary", "broadcast")

SIMPLE: Final = 0.9
"""Of the memory's bandwidth, for kernels that go through tensors in order: fp32 functions of 2**24 elements and more
on an H200 reach 0.89 to 0.92 (studies/h200_kernels)."""

CYCLES: Final = {"elementwise": 0.25, "dropout": 0.36, "rotary": 0.25, "broadcast": 0.6, "reduce": 0.4}
"""Cycles of a multiprocessor for an element, whatever its bytes: 16-bit functions on the same H200; kernels that
compute an index for each element are slower."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Bytes at the memory's rate, arithmetic at that of the ordinary units."""
    cost = action.cost
    moved = cost.read + cost.written
    launches = launches_of(cost, trainer.execution) * (cost.launches > 0)
    vector = device.vector["fp32"] if "fp32" in device.vector else device.matrix_rate(form.kernels)
    arithmetic = (cost.vector + cost.matrix) / vector
    stream = moved / memory_rate(device)
    if plain(trainer, device) and action.operator in CYCLES:
        stream = moved / (device.memory_bandwidth * SIMPLE)
        stream = at_least(stream, cost.work * CYCLES[action.operator] * cycle_seconds(device, activation_width(form)))
    elif action.operator in FUSIBLE and trainer.execution == "eager":
        stream = stream * (hidden_passes(trainer, device) / PLAIN_PASSES)
    stream = at_least(stream, arithmetic)
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
