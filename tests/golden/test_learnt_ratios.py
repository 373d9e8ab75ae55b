"""What ships of ratios is what the studies teach today: `make bands` writes it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from foretell.oracle.predict import predict
from foretell.oracle.ratios import DIFFERENCES, ratio_widths
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.ratios import measured_pairs, ratio_coverage
from foretell.validation.study import MeasuredRun, read


@pytest.mark.slow
def test_the_shipped_ratios_are_learnt_from_the_studies() -> None:
    pairs = [
        pair
        for path in (*published.files(), *published.own_files())
        for study in [read(path)]
        for pair in measured_pairs(study.family, study.name, compare(swept(study.rows), predict))
    ]
    learnt, shipped = ratio_coverage(pairs), ratio_widths()
    assert learnt.widths.evidence == shipped.evidence, "predictions moved: make bands"
    assert learnt.widths.ratio.stretch == pytest.approx(shipped.ratio.stretch, abs=0.01)
    for name in DIFFERENCES:
        assert learnt.widths.ratio.widths[name] == pytest.approx(shipped.ratio.widths[name], abs=0.005), name


def swept(rows: Iterable[MeasuredRun]) -> list[MeasuredRun]:
    """Rows of sweeps: only plans that were timed beside another one can be of a pair."""
    sweeps: dict[tuple[str, ...], list[MeasuredRun]] = {}
    for row in rows:
        if row.step_seconds:
            sweeps.setdefault(row.choice, []).append(row)
    return [row for own in sweeps.values() if len({row.plan for row in own}) > 1 for row in own]
