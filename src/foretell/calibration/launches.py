"""How many kernels the two passes of a step start, by the count that predictions use."""

from __future__ import annotations

from foretell.cost.price import priced
from foretell.hardware import catalog
from foretell.oracle.request import read
from foretell.oracle.resolve import resolve


def launches(model: str, batch: int) -> float:
    """Launches of one step of a model of the zoo on one rank, without the optimizer's."""
    return sum(launches_by_pass(model, batch))


def launches_by_pass(model: str, batch: int) -> tuple[float, float]:
    """Those of the forward pass, and of the backward pass."""
    asked = resolve(read(model=model, plan="dp1", batch=batch))
    plan = priced(asked.setting, catalog.cluster("this-machine"))
    layers = [(plan.kinds[kind].launches, times) for shape in plan.signatures for kind, times, *_ in shape.layers]
    return sum(times * each[0] for each, times in layers), sum(times * each[1] for each, times in layers)
