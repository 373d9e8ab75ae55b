"""The product that makes logits, a piece of the rows at a time: every piece reads the whole weight, and adds to the
whole gradient of it."""

from __future__ import annotations

from typing import Final

import msgspec

from foretell.cost.kernels import matmul
from foretell.cost.kernels._frame import activation_width
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.hardware.cluster import Device
from foretell.model.operator import OperatorPart
from foretell.model.operators.matmul import IN_PIECES, piece_rows
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import at_least

OPERATORS: Final = (IN_PIECES,)


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """As many products of a piece as there are: the prices of products, no run with this loss was measured."""
    n = action.loops
    rows = piece_rows(n["row"], n["in"], n["out"])
    count = n["row"] / rows
    width = activation_width(form)
    weight = n["in"] * n["out"] * width
    whole, total = weight + n["row"] * (n["in"] + n["out"]) * width, action.cost.read + action.cost.written
    moved = weight + rows * (n["in"] + n["out"]) * width + at_least(total - whole, 0) / count
    cost = OperatorPart(matrix=action.cost.matrix / count, read=moved, launches=1, fused=1)
    piece = msgspec.structs.replace(action, operator="matmul", loops={**n, "row": rows}, cost=cost)
    found = matmul.price(piece, device, form, trainer)
    summed = weight / memory_rate(device) if action.part == "weight_gradient" else 0.0
    return KernelPrice(
        found.matrix * count,
        found.stream * count,
        (found.after + summed) * count,
        found.launch * count,
        found.launches * count,
        found.provenance,
    )
