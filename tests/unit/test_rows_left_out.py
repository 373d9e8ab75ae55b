"""Constants chosen again without a fold of a source's rows."""

from __future__ import annotations

import msgspec
import pytest

from foretell.oracle.predict import predict
from foretell.plan.trainer import trainer
from foretell.validation import published
from foretell.validation.evaluate import compare
from foretell.validation.in_view import TOGETHER, Slot, in_groups, in_view, slots_of
from foretell.validation.left_out import prepared
from foretell.validation.rows_left_out import (
    FOLDS,
    ROWS,
    SHARES,
    as_shipped,
    choose_without_fold,
    fold_of,
    folded,
    ways_of,
)
from foretell.validation.sides import predicted
from foretell.validation.study import MeasuredRun, read
from foretell.validation.unseen import row_counts, unseen_runs

SOURCES = sorted({source for sources in in_view().values() for source in sources})


def test_every_row_lies_in_one_fold_and_runs_of_one_question_in_the_same():
    rows = read(published.FOLDER / "vtrain_single.csv").rows
    counts = [sum(fold_of(row) == fold for row in rows) for fold in range(FOLDS)]
    assert sum(counts) == len(rows)
    assert min(counts) > len(rows) / FOLDS / 2
    questions = {(row.model, str(row.plan), row.cluster, row.job.batch): fold_of(row) for row in rows}
    assert all(fold_of(row) == questions[row.model, str(row.plan), row.cluster, row.job.batch] for row in rows)


@pytest.mark.parametrize("source", SOURCES)
def test_a_constant_may_be_as_it_ships_or_near_it(source: str):
    for group in in_groups(slots_of(source)):
        ways = ways_of(group)
        assert ways[0] == {slot: as_shipped(slot) for slot in group}
        assert all(set(way) == set(group) for way in ways)
        for slot in group:
            if slot.key in SHARES or slot.kind == "kernels":
                assert all(number <= 1 for way in ways for number in _numbers(way[slot]))


def _numbers(value: object) -> list[float]:
    return [number for _, number in value] if isinstance(value, tuple) else [float(str(value))]


def test_the_hosts_time_is_scaled_as_a_whole():
    group = [Slot("trainers", "megatron-deepspeed", key) for key in TOGETHER]
    shipped = trainer("megatron-deepspeed").host
    for way in ways_of(group):
        launch, layer, again = (way[slot] for slot in group)
        assert (launch, again) == (0.0, True) or (layer, again) == (0.0, False)
        assert layer in (0.0, *(shipped.layer * 2 ** (step / 3) for step in (-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3)))


@pytest.mark.parametrize("source", SOURCES)
def test_what_ships_has_all_constants_of_every_fold(source: str):
    assert len(folded()[source]) == FOLDS
    assert all(set(chosen) == set(slots_of(source)) for chosen in folded()[source])


def test_a_fold_does_not_choose_its_own_constants():
    """Rows that took half as long again change what is chosen with them in view, and not without them."""
    study = read(published.FOLDER / "vtrain_multi.csv")
    runs = prepared((("vtrain", one) for one in compare(study.rows[::4], predict)), ROWS)
    out = fold_of(runs[0].row)
    slower = [one._replace(row=_slower(one.row)) if fold_of(one.row) == out else one for one in runs]
    assert choose_without_fold("vtrain", out, runs) == choose_without_fold("vtrain", out, slower)
    within = (out + 1) % FOLDS
    assert choose_without_fold("vtrain", within, runs) != choose_without_fold("vtrain", within, slower)


def _slower(row: MeasuredRun) -> MeasuredRun:
    return msgspec.structs.replace(row, id=f"{row.id} slower", step_seconds=1.5 * row.step_seconds)


def test_rows_of_a_fold_are_predicted_without_it():
    """vTrain's rows, whose constants were chosen on them: near what they are in view of, and nearer than unseen."""
    study = read(published.FOLDER / "vtrain_multi.csv")
    (sides,) = predicted([(study, study.rows)], again=True)
    runs = unseen_runs(study, sides)
    assert any(run.fold != run.seen for run in runs)
    assert sum(abs(run.fold) for run in runs) < sum(abs(run.unseen) for run in runs)
    counts = row_counts([(study, [one.seen for one in sides])])
    assert counts.share("study", "vtrain_multi") == 1.0
    assert counts.share("trainer", "nobody's") == 1.0
