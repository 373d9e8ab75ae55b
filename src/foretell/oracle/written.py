"""Predictions as they are written down: JSON has no infinity."""

# pyright: reportIncompatibleVariableOverride=false

from __future__ import annotations

import math
from typing import Any

import msgspec

from foretell.oracle.predict import Prediction
from foretell.oracle.training import Training


class WholeRun(Training, frozen=True, kw_only=True):
    """A whole run. JSON has no infinity."""

    interval: float | None  # seconds of training between two checkpoints; null: none are written
    mtbf: float | None  # mean seconds between failures of the job; null: there are none


class StepAnswer(Prediction, frozen=True, kw_only=True):
    """A prediction of a step, and of a whole run where one is asked about."""

    training: WholeRun | None = None


def written(found: Prediction) -> StepAnswer:
    """A prediction with nothing in it that JSON has no word for."""
    fields: dict[str, Any] = {name: getattr(found, name) for name in Prediction.__struct_fields__}
    if found.training is not None:
        figures: dict[str, Any] = msgspec.structs.asdict(found.training)
        figures |= {name: figures[name] if math.isfinite(figures[name]) else None for name in ("interval", "mtbf")}
        fields["training"] = WholeRun(**figures)
    return StepAnswer(**fields)
