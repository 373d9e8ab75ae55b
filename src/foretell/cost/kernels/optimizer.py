"""The optimizer's step: every state read and written, in one kernel or in a pass for each line of its formula.

Trainers that keep a master copy bring their own fused kernel. PyTorch's own optimizers on plain weights take a list of
tensors through one kernel for each line (`foreach`, the default on GPUs).
"""

from __future__ import annotations

from typing import Final

from foretell.cost.kernels._price import Price
from foretell.cost.kernels._reached import cycle_seconds, memory_rate
from foretell.hardware.cluster import Device
from foretell.plan.policies.precision import Format
from foretell.program.action import Update
from foretell.units import at_least

OPERATORS: Final = ()
"""It prices updates, not operators."""

PASSES: Final = {"sgd": 3, "momentum": 8, "adam": 18, "adamw": 20}
"""Values read and written per weight, one kernel a line, counted from the formulas. Adam: m towards g (3), v scaled
(2), v plus g squared (3), its root (2), scaled (2), plus epsilon (2), the step (4); AdamW first scales the weight (2).
Rules that are not here are priced as fused."""

VALUE_CYCLES: Final = 0.15
"""Cycles of a multiprocessor for a value read or written, whatever its bytes: 16-bit states on an H200, four rules and
four sets of weights (studies/h200_kernels)."""


def update(action: Update, device: Device, form: Format) -> Price:
    """Bytes at the memory's rate."""
    cost = action.cost
    moved = cost.read + cost.written
    plain = form.master == 0
    if plain and action.rule in PASSES:
        moved = at_least(moved, PASSES[action.rule] * action.parameters * form.state)
    launches = cost.launches if plain else cost.fused
    values = moved / form.state if plain else 0
    stream = at_least(moved / memory_rate(device), values * VALUE_CYCLES * cycle_seconds(device, form.state))
    return Price(0.0 * stream, stream, 0.0, device.launch_seconds * launches, launches, "carried over")
