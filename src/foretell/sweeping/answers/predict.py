"""One plan, as `foretell predict` tells it."""

from __future__ import annotations

from foretell.oracle.request import read_plan
from foretell.oracle.resolve import PlanEvaluator
from foretell.sweeping.answers._question import request, told
from foretell.sweeping.cell import FAILED, OK, TOO_LARGE, SweepCell, SweepRow, row
from foretell.units import show_bytes

TAKES_PLANS = True
ALONE = False


def answer(cell: SweepCell) -> SweepRow:
    """Predict the cell's plan; one that breaks rules is a failure with their numbers."""
    plans, plan = PlanEvaluator(request(cell)), read_plan(cell.plan)
    refusals = plans.refusals(plan)
    if refusals:
        return row(cell, FAILED, reason="; ".join(map(str, refusals)))
    step = plans.predicted(plan)
    usable = plans.usable(step)
    over = step.memory_bytes - usable
    found = {**told(step), "usable_bytes": usable, "evaluated": 1}
    if over > 0:
        return row(cell, TOO_LARGE, reason=f"{show_bytes(over)} too much", **found)
    return row(cell, OK, **found)
