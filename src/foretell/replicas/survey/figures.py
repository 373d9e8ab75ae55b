"""The survey's figures 5 (parts of an iteration) and 9 (memory) beside their prediction, point by point."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.bench.row import BenchRow
from foretell.replicas.survey import predicted, published
from foretell.replicas.survey.predicted import SurveyCase
from foretell.replicas.survey.published import Counts, PublishedCurve

ALL, BACKWARD, MEMORY = "all", "back", "memory"
"""What a point is of: an iteration, its backward pass (seconds), one GPU's memory (bytes)."""

FORWARD_ONLY = ("forward", "input")
EITHER = ("bubble", "host", "other")
"""Parts of a step that lie in both passes: each has its share of them. What is neither is in the backward pass, where
gradients travel and the survey's clock stops after the update."""


class FigurePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a figure: of ThetaGPU and GPT2-medium, as both figures are."""

    framework: str
    gpus: int
    what: str
    measured: float
    predicted: float
    error: float  # predicted over measured, less one


def iterations() -> tuple[FigurePoint, ...]:
    """Figure 5: seconds in which the mini-batch of one GPU is done, and of its backward pass."""
    whole, back = published.iterations(), published.backward()
    return (*_points(whole, ALL), *_points(back, BACKWARD))


def memory() -> tuple[FigurePoint, ...]:
    """Figure 9: the mean over GPUs, since the fullest stage of a pipeline is far above what it shows."""
    return tuple(_points(published.memory(), MEMORY))


def _points(figure: dict[PublishedCurve, Counts], what: str) -> Iterator[FigurePoint]:
    for curve, counts in figure.items():
        for gpus, measured in counts.items():
            case = SurveyCase(curve, gpus)
            row = predicted.row(case)
            if row.ok:
                own = row.mean_memory_bytes if what == MEMORY else _seconds(row, case, what)
                yield FigurePoint(
                    framework=curve.framework,
                    gpus=gpus,
                    what=what,
                    measured=measured,
                    predicted=own,
                    error=own / measured - 1,
                )


def _seconds(row: BenchRow, case: SurveyCase, what: str) -> float:
    whole = row.step_seconds * case.task.batch / row.batch
    if what == ALL:
        return whole
    forward = sum(seconds for name, seconds in row.phases.items() if name in FORWARD_ONLY)
    backward = sum(seconds for name, seconds in row.phases.items() if name not in (*FORWARD_ONLY, *EITHER))
    return whole * backward / (forward + backward)
