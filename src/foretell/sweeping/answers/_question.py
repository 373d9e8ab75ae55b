"""A cell as the question that the oracle answers, and a prediction as a cell's line."""

from __future__ import annotations

from typing import Any

from foretell.oracle.predict import Prediction
from foretell.oracle.request import Request, read
from foretell.sweeping.cell import SweepCell


def request(cell: SweepCell) -> Request:
    """The question that a cell is."""
    return read(
        model=cell.model,
        on=cell.cluster,
        plan=cell.plan or None,
        batch=cell.batch,
        seq=cell.seq or None,
        trainer=cell.trainer,
        optimizer=cell.optimizer,
        precision=cell.precision,
        only=cell.only,
        without=cell.without,
        also=cell.also,
        fix=cell.fixed,
        max_memory=cell.max_memory or None,
        top=1,
        calibration=cell.calibration,
        stack=cell.stack,
    )


def told(step: Prediction) -> dict[str, Any]:
    """What a line says of a prediction."""
    low, high = step.interval
    names = ("plan", "ranks", "step_seconds", "samples_per_second", "tokens_per_second", "utilisation", "memory_bytes")
    return {"low_seconds": low, "high_seconds": high, **{name: getattr(step, name) for name in names}}
