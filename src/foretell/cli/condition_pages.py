"""A study under several conditions, for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from foretell.cli.table import folded, table

if TYPE_CHECKING:
    from foretell.validation.conditions import Condition

WHAT: Final = (
    "accuracy: of step times, the mean of strategies; computing, messages: mean absolute error of either part, where "
    "it was measured apart; right: choices of the fastest plan; loss: what the others cost, mean over all choices. "
    "Each model left out: with constants chosen on the parts of the other models. Anchored: one run of each model "
    "corrects the others, the middle of 21 draws."
)


def condition_lines(found: Iterable[Condition]) -> list[str]:
    """A line each."""
    rows = [
        [
            one.name,
            str(one.runs),
            *map(_percent, (one.accuracy, one.compute, one.messages)),
            f"{one.right} of {one.choices}",
            _percent(one.loss),
        ]
        for one in found
    ]
    if not rows:
        return []
    header = ["%", "runs", "accuracy", "computing", "messages", "right", "loss"]
    return ["", table(header, rows), "", folded(WHAT, indent=0)]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
