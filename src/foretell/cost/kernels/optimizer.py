"""The optimizer's step: every state read and written, in one kernel or in a pass for each line of its formula.

Trainers that keep a master copy bring their own fused kernel. PyTorch's own optimizers on plain weights take a list of
tensors through one kernel for each line (`foreach`, the default on GPUs).
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._price import KernelPrice
from foretell.cost.kernels._reached import cycle_seconds, memory_rate, rates
from foretell.hardware.cluster import Device
from foretell.model.optimizer import update_rule
from foretell.plan.policies.precision import Format
from foretell.program.action import Update
from foretell.units import at_least

OPERATORS: Final = ()
"""It prices updates, not operators."""

VALUE_CYCLES: Final = 0.15
"""Cycles of a multiprocessor for a value read or written, whatever its bytes: 16-bit states on an H200, four rules and
four sets of weights (studies/h200_kernels)."""


def update(action: Update, device: Device, form: Format) -> KernelPrice:
    """Bytes at the memory's rate, after products of whole matrices where a rule has some."""
    cost, rule = action.cost, update_rule(action.rule)
    moved = cost.read + cost.written
    plain = form.master == 0
    if plain and rule.passes:
        moved = at_least(moved, rule.passes * action.parameters * form.state)
    launches = cost.launches if plain else cost.fused
    values = moved / form.state if plain else 0
    stream = at_least(moved / memory_rate(device), values * VALUE_CYCLES * cycle_seconds(device, form.state))
    started = device.launch_seconds * launches
    if rule.of_matrix is None:
        return KernelPrice(0.0 * stream, stream, 0.0, started, launches, "carried over")
    reached = rates(device, rule.precision if device.supports(rule.precision) else form.kernels)
    return KernelPrice(cost.matrix / reached.flops, 0.0 * stream, stream, started, launches, "carried over")
