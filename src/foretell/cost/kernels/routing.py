"""Sorting rows by their expert, and the best experts of each row: many small kernels, or one that walks each row.

Both are bound by instructions and by waiting, not by bytes: on an H200 a sort of any number up to 65,536 takes 86 us.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels import traffic
from foretell.cost.kernels._frame import plain, where
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import at_least

OPERATORS: Final = ("sort", "top_k")

SORT_SECONDS: Final = 77e-6
SHORT_SECONDS: Final = 30e-6
SHORT: Final = 4096
SORT_CYCLES: Final = 21
"""Of a radix sort of whole numbers: its kernels wait for each other, whatever they sort; fewer rows fit one block; and
cycles of a multiprocessor a row. 21 sorts of 2,048 to 524,288 rows on an H200 (studies/h200_experts_and_context)."""

TOP_SECONDS: Final = 4e-6
ROW_CYCLES: Final = 338
LEAST_CYCLES: Final = 580
CLASS_CYCLES: Final = 10
"""Of the best of each row: cycles of a multiprocessor a row, at least, and a class; 21 calls over 8 to 256 classes."""

WIDE: Final = 4  # bytes of the scores that rows are ranked by


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Seconds of waiting and of instructions where operators run one by one; bytes elsewhere."""
    found = traffic.price(action, device, form, trainer)
    if device.is_processor or not plain(trainer, device):
        return found
    n, cycle = action.loops, cycle_seconds(device, WIDE)
    if action.operator == "sort":
        fixed = where(n["row"] > SHORT, SORT_SECONDS, SHORT_SECONDS)
        busy = n["row"] * SORT_CYCLES * cycle
    else:
        fixed = TOP_SECONDS
        busy = n["row"] * at_least(ROW_CYCLES + CLASS_CYCLES * n["class"], LEAST_CYCLES) * cycle
    return KernelPrice(
        found.matrix, at_least(found.stream, busy), fixed, found.launch, found.launches, found.provenance
    )
