"""Accuracy as the oracle paper counts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from foretell.validation import published
from foretell.validation.accuracy import accuracies
from foretell.validation.evaluate import ComparedRun
from foretell.validation.study import MeasuredRun, read


@dataclass(frozen=True)
class Foretold:
    """A prediction of which only the time matters."""

    step_seconds: float
    memory: Any = None
    fits: Any = True
    usable: float = 1.0
    interval: tuple[float, float] = (0.0, 0.0)


def foretold(row: MeasuredRun, factor: float) -> ComparedRun:
    return ComparedRun(row, Foretold(row.step_seconds * factor), "")


def test_the_papers_own_accuracies_come_out() -> None:
    """96.10, 85.56, 73.67, 91.43, 83.46 and 90.22 are printed; bars are good to a per cent."""
    rows = read(published.files("paradl")[0]).rows
    found = {one.name: one for one in accuracies(foretold(row, 1.25) for row in rows)}
    printed = {"data": 0.961, "filter": 0.8556, "channel": 0.7367, "data+filter": 0.9143, "data+spatial": 0.8346}
    printed["pipeline"] = 0.9022
    assert {name: found[name].theirs for name in printed} == pytest.approx(printed, abs=0.006)
    assert found["mean of strategies"].theirs == pytest.approx(sum(printed.values()) / 6, abs=0.004)
    assert [one.ours for one in found.values()] == pytest.approx([0.75] * len(found))
    assert found["data"].runs == 21


def test_studies_without_predictions_have_none() -> None:
    rows = read(published.files("vtrain_multi")[0]).rows
    assert accuracies(foretold(row, 1.0) for row in rows) == []
