"""Memory-bound operators: all that is not a product. They cost their bytes, or their instructions if that is more.

A trainer's own layers can fuse what stands between the products: `hidden_passes` says how often its layer reads or
writes the hidden tensor in the forward pass. The graph's plain layer does so ten times (two norms, a read and a write
each; two sums, two reads and a write each), so such operators have the ratio of the two in bytes. With ten, every
operator is a kernel of its own, at the rates that such kernels were measured at.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._frame import activation_width, hidden_passes, launches_of, plain, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.program.casts import PLAIN_PASSES
from foretell.units import WIDTH, Quantity, at_least

FUSIBLE: Final = ("elementwise", "normalize", "dropout", "rotary", "broadcast")
OPERATORS: Final = ("elementwise", "dropout", "rotary", "broadcast")

SIMPLE: Final = 0.9
"""Of the memory's bandwidth, for kernels that go through tensors in order: fp32 functions of 2**24 elements and more
on an H200 reach 0.89 to 0.92 (studies/h200_kernels)."""

CYCLES: Final = {"elementwise": 0.25, "dropout": 0.36, "rotary": 0.25, "broadcast": 0.6, "reduce": 0.4}
"""Cycles of a multiprocessor for an element, whatever its bytes: 16-bit functions on the same H200; kernels that
compute an index for each element are slower."""


COMPLEX_KERNELS: Final = 3
"""Positions turned as complex numbers: cast to fp32, the product, cast back."""
WIDENED: Final = {2: 0.70, 6: 0.97}
"""The same where 16-bit numbers become fp32 ones, by the bytes that are read of an element: a cast (2**22 to 2**28
elements on the same H200, 2.9 ps each; the way back is bound by bytes), and a sum of both types, whose kernel casts one
element at a time as well (196 sums in a step of studies/h200_finetuning)."""


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Bytes at the memory's rate, arithmetic at that of the ordinary units."""
    cost = action.cost
    moved = cost.read + cost.written
    launches = launches_of(cost, trainer.execution) * (cost.launches > 0)
    if action.operator == "rotary" and trainer.fusion.complex_rotary and trainer.execution != "eager":
        moved, launches = _as_complex(action, form), COMPLEX_KERNELS
    vector = device.vector["fp32"] if "fp32" in device.vector else device.matrix_rate(form.kernels)
    arithmetic = (cost.vector + cost.matrix) / vector
    stream = moved / memory_rate(device)
    if plain(trainer, device) and action.operator in CYCLES:
        stream = moved / (device.memory_bandwidth * SIMPLE)
        cycles = CYCLES[action.operator]
        if action.operator == "elementwise" and activation_width(form) < WIDTH["fp32"]:
            for read, slower in WIDENED.items():
                widened = (cost.written == WIDTH["fp32"] * cost.work) & (cost.read == read * cost.work)
                cycles = where(widened, slower, cycles)
        stream = at_least(stream, cost.work * cycles * cycle_seconds(device, activation_width(form)))
    elif action.operator in FUSIBLE and trainer.execution == "eager":
        stream = stream * (hidden_passes(trainer, device) / PLAIN_PASSES)
    stream = at_least(stream, arithmetic)
    return KernelPrice(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")


def _as_complex(action: Compute, form: Format) -> Quantity:
    """Bytes of the three kernels: each reads and writes the tensor, the product in fp32."""
    n, width = action.loops, activation_width(form)
    casts = 2 * (width + WIDTH["fp32"]) * (width < WIDTH["fp32"])
    return n["row"] * n["position"] * n["feature"] * (casts + 2 * WIDTH["fp32"])
