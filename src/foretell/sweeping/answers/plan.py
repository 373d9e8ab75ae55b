"""The best plan of all that are legal, as `foretell plan` finds it."""

from __future__ import annotations

from foretell.oracle.planning import PlanningAnswer
from foretell.oracle.recommend import recommended_answer
from foretell.sweeping.answers._question import request, told
from foretell.sweeping.cell import FAILED, OK, TOO_LARGE, SweepCell, SweepRow, row
from foretell.units import show_bytes

TAKES_PLANS = False
ALONE = False


def answer(cell: SweepCell) -> SweepRow:
    """Search, and tell the winner as `foretell predict` does."""
    answer = recommended_answer(request(cell))
    found = answer.found
    if not found.complete:  # the search takes Ctrl-C for itself, and half an answer is none
        raise KeyboardInterrupt
    about = {"ranks": found.ranks, "evaluated": found.evaluated, "usable_bytes": found.capacity}
    if found.best is not None:
        return row(cell, OK, **{**told(answer.predicted(found.best.value)), **about})
    if found.nearest is None:
        return row(cell, FAILED, reason=_refused(answer), **about)
    over = show_bytes(found.nearest.memory_bytes - found.capacity)
    return row(cell, TOO_LARGE, reason=f"{over} too much with {found.nearest.plan}", **about)


def _refused(answer: PlanningAnswer) -> str:
    why = next((answer.space.why[rule] for rule in answer.found.refused), "")
    return f"every plan is refused: {why}" if why else "no plan is left"
