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
            f"{100 * one.accuracy:.1f}",
            *("-" if value is None else f"{100 * value:.1f}" for value in (one.compute, one.messages)),
            f"{one.right} of {one.choices}",
            "-" if one.loss is None else f"{100 * one.loss:.1f}",
        ]
        for one in found
    ]
    if not rows:
        return []
    header = ["%", "runs", "accuracy", "computing", "messages", "right", "loss"]
    return ["", table(header, rows), "", folded(WHAT, indent=0)]
