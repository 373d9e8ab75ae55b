"""Scans: the products inside chunks and with states, in tiles, beside the traffic of what goes in and comes out.

No scan was timed: the products are taken to reach what products of such sizes reach, which fused kernels whose
operands lie in registers may beat or miss. The first Mamba's has no products: its arithmetic runs on the vector units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from foretell.cost.kernels._frame import launches_of
from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import memory_rate
from foretell.cost.kernels._tiles import product_seconds, units
from foretell.hardware.cluster import Device
from foretell.model.operators.delta_rule import DeltaRule
from foretell.model.operators.scan import Scan
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer
from foretell.program.action import Compute
from foretell.units import Quantity, ceil_div


class Chunked(NamedTuple):
    """Products of rows x inner by inner x columns, and how often each runs forward and backward."""

    rows: Quantity
    columns: Quantity
    inner: Quantity
    count: Quantity
    forward: float
    backward: float


def _scan(n: Mapping[str, Quantity]) -> Iterator[Chunked]:
    """Both gradients of each product; two kinds are made again."""
    length = Scan().length(n)
    chunks = n["sample"] * n["group"] * ceil_div(n["sequence"], length)
    heads = chunks * n["share"]
    yield Chunked(length, length, n["state"], chunks, 1, 3)
    yield Chunked(length, n["feature"], length, heads, 1, 2)
    yield Chunked(length, n["feature"], n["state"], heads, 1, 2.5)
    yield Chunked(n["state"], n["feature"], length, heads, 1, 2.5)


def _delta_rule(n: Mapping[str, Quantity]) -> Iterator[Chunked]:
    """The same; and the gradient of the inverse, by two products of triangles."""
    length = DeltaRule().length(n)
    heads = n["sample"] * n["head"] * ceil_div(n["sequence"], length)
    yield Chunked(length, length, n["key"], heads, 2, 6)
    yield Chunked(length, n["key"], length, heads, 1, 3)
    yield Chunked(length, n["value"], length, heads, 2, 5)
    yield Chunked(length, n["value"], n["key"], heads, 2, 5)
    yield Chunked(n["key"], n["value"], length, heads, 1, 3)
    yield Chunked(length, length, length, heads, 0, 2)


PRODUCTS: Final[dict[str, Callable[[Mapping[str, Quantity]], Iterator[Chunked]]]] = {
    "scan": _scan,
    "delta_rule": _delta_rule,
}

OPERATORS: Final = (*PRODUCTS, "selective_scan")


def price(action: Compute, device: Device, form: Format, trainer: Trainer) -> KernelPrice:
    """Products as often as they run, or arithmetic where there are none, beside traffic."""
    n, cost = action.loops, action.cost
    by = units(device, form.other_kernels)
    stream = (cost.read + cost.written) / memory_rate(device)
    launches = launches_of(cost, trainer.execution)
    matrix = 0.0 * stream
    if action.operator not in PRODUCTS:
        matrix = matrix + cost.vector / device.matrix_rate("fp32")
    elif action.part != "weight_gradient":
        for part in PRODUCTS[action.operator](n):
            times = part.forward if action.part == "forward" else part.backward
            matrix = matrix + times * product_seconds(part.rows, part.columns, part.inner, part.count, by)
    return KernelPrice(matrix, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
