"""One cell answered, wherever that happens: whatever goes wrong is an answer too."""

from __future__ import annotations

from foretell.errors import ForetellError
from foretell.registry import OpenSet
from foretell.sweeping.cell import BROKEN, FAILED, SweepCell, SweepRow, row

ANSWERS = OpenSet("foretell.sweeping.answers", "way to answer a cell")


def answered(cell: SweepCell) -> SweepRow:
    """The line of a cell. A question that cannot be asked is a failure with its reason; a defect leaves its name."""
    try:
        return ANSWERS[cell.ask].answer(cell)
    except ForetellError as problem:
        return row(cell, FAILED, reason=_one_line(problem.what))
    except Exception as defect:  # of one cell: the others shall not suffer from it
        return row(cell, BROKEN, reason=_one_line(f"{type(defect).__name__}: {defect}"))


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())
