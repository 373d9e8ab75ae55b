"""What was measured beside what is predicted: the record of a run that was handed in, and a question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from foretell.oracle.predict import Prediction
from foretell.oracle.written import StepAnswer, written
from foretell.report.comparison import both_cards, time_section
from foretell.report.page import Page, body
from foretell.serve.calls import Call
from foretell.serve.calls.predict import told
from foretell.serve.measured import RunMeasurement, Upload, ran
from foretell.serve.question import Question, read


class MeasuredQuestion(Question, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question, and what was measured."""

    measured: Upload


class PredictedAndMeasured(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction and a measurement. `error` is predicted over measured, less one."""

    prediction: StepAnswer
    measured: RunMeasurement
    error: float
    inside: bool  # whether the measured step lies in the interval
    html: str


def answer(question: MeasuredQuestion) -> PredictedAndMeasured:
    found, measured = told(read(question)), ran(question.measured)
    sides = (found, measured.observation)
    parts = replace(time_section(*sides), title="Part by part")
    notes = tuple(differing(found, measured))
    shown = Page(title="", plan="", cards=tuple(both_cards(*sides)), sections=(parts,), notes=notes)
    low, high = found.interval
    return PredictedAndMeasured(
        prediction=written(found),
        measured=measured,
        error=found.step_seconds / measured.step_seconds - 1,
        inside=low <= measured.step_seconds <= high,
        html=body(shown),
    )


def differing(predicted: Prediction, measured: RunMeasurement) -> Iterator[str]:
    """Where the run was of something else."""
    for name in ("model", "plan", "batch", "ranks"):
        here, there = getattr(predicted, name), getattr(measured, name)
        if here != there:
            yield f"another {name}: {there} was measured, and the prediction is for {here}"


CALL = Call(MeasuredQuestion, PredictedAndMeasured, answer)
