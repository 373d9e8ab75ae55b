"""A cell as the question that the oracle answers, and a prediction as a cell's line."""

from __future__ import annotations

from typing import Any

from foretell.oracle.planning import Question, asked
from foretell.oracle.predict import Prediction
from foretell.oracle.space import Wishes
from foretell.sweeping.cell import Cell


def question(cell: Cell) -> Question:
    """The one question that a cell is."""
    wishes = Wishes(only=cell.only, without=cell.without, also=cell.also, fixed=cell.fixed)
    (found,) = asked(
        cell.model,
        cell.cluster,
        cell.batch,
        trainer=cell.trainer,
        optimizer=cell.optimizer,
        seq=cell.seq or None,
        precision=cell.precision,
        wishes=wishes,
        max_memory=cell.max_memory or 0.0,
        top=1,
        calibration=cell.calibration,
    )
    return found


def told(step: Prediction) -> dict[str, Any]:
    """What a line says of a prediction."""
    low, high = step.interval
    names = ("plan", "ranks", "step_seconds", "samples_per_second", "tokens_per_second", "utilisation", "memory_bytes")
    return {"low_seconds": low, "high_seconds": high, **{name: getattr(step, name) for name in names}}
