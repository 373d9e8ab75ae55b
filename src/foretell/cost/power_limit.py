"""What a device's limit of power adds to its kernels: those that draw more together than it may run slower.

A calibration times kernels alone, at clocks that fall only where others follow: a large product would draw a third more
than an H200 may, a copy a fifth less (studies/h200_power). Some it times among others as well, and says what those
would have drawn at full clocks. A layer that would draw as much has kernels as slow as those; one that keeps within the
limit has them as they are alone; between the two the ratio goes with what is drawn above the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from foretell.cost.energy import IDLE, MOST, above_idle
from foretell.cost.kernels import KernelPrice
from foretell.cost.kernels._measured import sizes, times
from foretell.hardware.cluster import Device
from foretell.hardware.measured import to_the
from foretell.model.autocast import PRODUCTS
from foretell.plan.policies.precision import Format
from foretell.program.action import Compute
from foretell.units import Quantity, at_least, at_most

Priced = Callable[[Compute], KernelPrice]

ATTENTION, PRODUCT, MOVED = "attention", "matmul", "elementwise"
"""Kernels that draw alike: attention, other products, and what moves memory."""

STANDING_IN: Final = {"fp16": "bf16", "tf32": "fp32"}
"""Precisions whose ratio is taken where their own was not timed: attention in tf32 is that in fp32."""

LEAST: Final = 1e-12
"""Seconds of a layer that has no kernels."""


def alike(operator: str) -> str:
    """What draws as an operator does."""
    if operator == ATTENTION:
        return ATTENTION
    return PRODUCT if operator in PRODUCTS else MOVED


def watts(actions: Iterable[Compute], price: Priced, device: Device, form: Format) -> Quantity:
    """What kernels would draw together, one after the other, if no limit slowed them down."""
    seconds, joules = 0.0, 0.0
    for one in actions:
        own = price(one).seconds
        seconds, joules = seconds + own, joules + above_idle(one, own, device, form)
    return device.power_watts * IDLE + joules / at_least(seconds, LEAST)


def among(actions: Sequence[Any], price: Priced, device: Device, form: Format) -> Priced:
    """Prices of a layer's kernels as they are among each other."""
    known = device.under_power
    least = device.power_watts * MOST
    most = known.watts.get(form.kernels, 0.0) if known else 0.0
    if known is None or most <= least:
        return price
    drawn = watts([one for one in actions if isinstance(one, Compute)], price, device, form)
    share = at_most(at_least((drawn - least) / (most - least), 0.0), 1.0)

    def slower(action: Compute) -> KernelPrice:
        word = form.kernels if action.operator in PRODUCTS else form.activation
        for precision in (word, STANDING_IN.get(word, word)):
            if ratio := known.ratios.get(f"{alike(action.operator)} {precision}"):
                return times(price(action), to_the(ratio.factor(*sizes(action.cost)), share))
        return price(action)

    return slower
