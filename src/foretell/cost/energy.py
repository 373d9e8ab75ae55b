"""What devices draw while they train: watts by what keeps a device busy, as shares of the most it may draw.

Shares were read off one H200 under steady loads by the card's own energy counter (studies/h200_power, the half that is
not set aside), and are carried to other devices by their limits: nothing else is known of them. Hosts, switches and
cooling are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from foretell.cost.kernels import arithmetic, unit_rate
from foretell.cost.kernels.matmul import multiplied_in
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.program.action import Compute
from foretell.units import Quantity, at_least

MEASURED_ON: Final = "h200"

IDLE: Final = 0.175
"""Drawn by a device that waits with its clocks up, for its host or for messages: 123 of 700 W."""

MATRIX: Final = 1.5
"""Drawn besides at the peak of matrix units, with random data, in any precision: 1.05 pJ a flop in bf16 (a loop that is
busy half of the time, at full clocks), 0.58 in fp8, 2.0 in TF32. More than the limit: clocks fall until it is kept."""

VECTOR: Final = 1.05
"""The same for products outside of matrix units: 11 pJ a flop in fp32."""

MEMORY: Final = 0.72
"""The same for the memory at its bandwidth: 105 pJ a byte of a copy at 4.2 TB/s."""

OPERATIONS: Final = 4.6
"""The same for what is computed element by element, at the fp32 peak of the ordinary units: 40 pJ for each of the eight
operations that a GELU counts as, 66 for each of the seven of layer norm, 86 for a sum, its loads and stores with it."""

RUNNING: Final = 0.34
"""That any kernel draws besides while it runs, if what it does needs less: 237 W for one that fills memory with a
number, the least of all that were measured. Kernels that wait for their own latencies draw so."""

MOST: Final = 0.985
"""That no load stays above: 684 to 694 of 700 W under products, attention and layer norm."""


class Energy(NamedTuple):
    """What the devices of a step draw."""

    joules: float  # of all devices in a step
    watts: float  # of one device, in the mean


def above_idle(action: Compute, seconds: Quantity, device: Device, form: Format) -> Quantity:
    """Joules of one part of one operator besides what the device draws anyway."""
    form = multiplied_in(action, form) if action.operator == "matmul" else form
    rate, plain = unit_rate(action, device, form), device.vector.get("fp32", 0.0)
    products = arithmetic(action, device, form) / rate * (VECTOR if rate <= plain else MATRIX)
    moved = (action.cost.read + action.cost.written) / device.memory_bandwidth * MEMORY
    computed = action.cost.vector / plain * OPERATIONS if plain else 0.0
    return device.power_watts * at_least(products + moved + computed, seconds * RUNNING)


def of_updates(seconds: float, device: Device) -> float:
    """Joules of updating weights, which memory binds, besides what the device draws anyway."""
    return device.power_watts * MEMORY * seconds


def drawn(device: Device, step_seconds: float, ranks: int, joules: Iterable[float]) -> Energy:
    """The energy of a step from what its kernels draw besides, on all ranks; none draws more than its limit."""
    busy = sum(joules) / (ranks * step_seconds)
    watts = min(device.power_watts * IDLE + busy, device.power_watts * MOST)
    return Energy(watts * step_seconds * ranks, watts)
