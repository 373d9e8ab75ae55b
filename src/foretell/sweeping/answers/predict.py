"""One plan, as `foretell predict` tells it."""

from __future__ import annotations

from foretell.oracle.trial import Trial
from foretell.plan.text import parse
from foretell.sweeping.answers._question import question, told
from foretell.sweeping.cell import FAILED, OK, TOO_LARGE, Cell, Row, row
from foretell.units import show_bytes

TAKES_PLANS = True
ALONE = False


def answer(cell: Cell) -> Row:
    """Predict the cell's plan; one that breaks rules is a failure with their numbers."""
    trial, plan = Trial(question(cell)), parse(cell.plan)
    refusals = trial.refusals(plan)
    if refusals:
        return row(cell, FAILED, reason="; ".join(map(str, refusals)))
    step = trial.predicted(plan)
    usable = trial.usable(step)
    over = step.memory_bytes - usable
    found = {**told(step), "usable_bytes": usable, "evaluated": 1}
    if over > 0:
        return row(cell, TOO_LARGE, reason=f"{show_bytes(over)} too much", **found)
    return row(cell, OK, **found)
