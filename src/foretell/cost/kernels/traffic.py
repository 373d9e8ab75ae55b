"""Memory-bound operators: all that is not a product. They cost their bytes, or their arithmetic if that is more.

A trainer's own layers can fuse what stands between the products: `hidden_passes` says how often its layer reads or
writes the hidden tensor in the forward pass. The graph's plain layer does so ten times (two norms, a read and a write
each; two sums, two reads and a write each), so such operators have the ratio of the two in bytes.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import launches_of
from foretell.cost.kernels._price import Price
from foretell.cost.kernels._reached import memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer, look_up
from foretell.program.action import Compute
from foretell.units import at_least

FUSIBLE: Final = ("elementwise", "normalize", "dropout", "rotary", "broadcast")
OPERATORS: Final = FUSIBLE

PLAIN_PASSES: Final = 10
"""Passes over the hidden tensor of a plain layer, forward; backward it has 16, the 1.6 times that trainers have too."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> Price:
    """Bytes at the memory's rate, arithmetic at that of the ordinary units."""
    cost = action.cost
    moved = cost.read + cost.written
    if action.operator in FUSIBLE and trainer.execution == "eager":
        moved = moved * (look_up(trainer.fusion.hidden_passes, device.architecture) / PLAIN_PASSES)
    launches = launches_of(cost, trainer.execution) * (cost.launches > 0)
    vector = device.vector["fp32"] if "fp32" in device.vector else device.matrix_rate(form.kernels)
    arithmetic = (cost.vector + cost.matrix) / vector
    stream = at_least(moved / memory_rate(device), arithmetic)
    return Price(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
