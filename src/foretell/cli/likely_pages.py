"""Chances to fit against what came, as a table."""

from __future__ import annotations

from collections.abc import Iterable

from foretell.cli.table import table
from foretell.validation.calibrated import calibration
from foretell.validation.score import Verdict


def likely_lines(verdicts: Iterable[Verdict]) -> list[str]:
    """One line for each span of chances."""
    rows = [
        [
            f"{100 * one.least:.0f} to {100 * one.most:.0f}",
            str(one.runs),
            f"{100 * one.chance:.1f}",
            f"{100 * one.ran:.1f}",
        ]
        for one in calibration(verdicts)
    ]
    return ["", table(["chance to fit, %", "runs", "mean, %", "ran, %"], rows)] if rows else []


def percent(share: float, digits: int = 0) -> str:
    """Without its sign, which is in the head of the column."""
    return f"{100 * share:.{digits}f}"
