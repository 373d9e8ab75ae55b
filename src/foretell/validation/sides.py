"""Measured runs predicted from all sides: as constants ship, without the run's source, and without its fold of it.

The three stand together, so that the program of a run is made once, and only its prices again with other constants.
Runs are dealt by model to copies of this process, one for each core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, cast

from foretell.forked_workers import ForkedWorkers
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.oracle.predict import predict
from foretell.plan.setting import Setting
from foretell.validation.evaluate import ComparedPrediction, ComparedRun, Predictor, compared_run, in_order
from foretell.validation.in_view import Chosen
from foretell.validation.left_out import chosen_again, is_touched, predictor_without
from foretell.validation.rows_left_out import fold_of, folded
from foretell.validation.sources import healthy, source_of
from foretell.validation.study import MeasuredRun, Study

TAKEN: Final = 60
"""Runs that a copy takes at a time, of one model."""

LEAST: Final = 200
"""Fewer runs than these are no work for copies."""


class Sides(NamedTuple):
    """One run; what no constant that is left out touches is the same from all sides."""

    seen: ComparedRun
    without: ComparedRun  # its source was never seen
    fold: ComparedRun  # nor the run itself and the others of its fold


Place: TypeAlias = tuple[int, int]
"""Of a study, and of a run in it."""

Found: TypeAlias = tuple[ComparedPrediction | None, str]


def seen_alone(seen: ComparedRun) -> Sides:
    return Sides(seen, seen, seen)


def from_all_sides(study: Study, seen: ComparedRun) -> Sides:
    """Healthy runs that are predicted also without their source, and timed ones without their fold."""
    row = seen.row
    if seen.prediction is None or not healthy(row):
        return seen_alone(seen)
    source = source_of(study.family, study.name, row)
    folds = folded().get(source, ()) if seen.time is not None else ()
    without = _again(seen, source, chosen_again().get(source, {}))
    return Sides(seen, without, _again(seen, source, folds[fold_of(row)]) if folds else seen)


def _again(seen: ComparedRun, source: str, chosen: Chosen) -> ComparedRun:
    device = catalog.cluster(seen.row.cluster).device
    touched = is_touched(seen.row, device.name, device.architecture, source, chosen)
    return compared_run(seen.row, predictor_without(source, chosen)) if touched else seen


class _Legal(NamedTuple):
    """Of a run that no rule refuses; its time is nobody's."""

    step_seconds: float = 1.0


def legal(setting: Setting, cluster: Cluster) -> ComparedPrediction:
    """Predicts nothing: for who asks which runs could be predicted, and has no use for what."""
    return cast("ComparedPrediction", _Legal())


def predicted(
    asked: Sequence[tuple[Study, Sequence[MeasuredRun]]],
    again: bool = False,
    told: Callable[[int], None] = lambda runs: None,
    copies: int = 0,
    by: Predictor = predict,
) -> list[list[Sides]]:
    """Runs of several studies, with `again` from all sides; `told` hears how many more are done."""

    def one(place: Place) -> Sides:
        study, rows = asked[place[0]]
        seen = compared_run(rows[place[1]], by)
        return from_all_sides(study, seen) if again else seen_alone(seen)

    def answer(places: Sequence[Place]) -> list[tuple[Found | None, ...]]:
        return [_short(one(place)) for place in places]

    tasks = list(_tasks([rows for _, rows in asked]))
    few = sum(len(rows) for _, rows in asked) < LEAST
    with ForkedWorkers(answer, 1 if few else copies) as workers:
        answers = workers.any_of(tasks, lambda at: told(len(tasks[at])))
    found = {
        place: _whole(asked[place[0]][1][place[1]], short)
        for places, shorts in zip(tasks, answers, strict=True)
        for place, short in zip(places, shorts, strict=True)
    }
    return [[found[study, at] for at in range(len(rows))] for study, (_, rows) in enumerate(asked)]


def _tasks(studies: Sequence[Sequence[MeasuredRun]]) -> Iterable[list[Place]]:
    """Runs of one model together, those of one number of samples after one another."""
    places = [(study, at) for study, rows in enumerate(studies) for at in range(len(rows))]
    models: dict[str, list[Place]] = {}
    for study, at in sorted(places, key=lambda place: (in_order(studies[place[0]][place[1]]), place)):
        models.setdefault(studies[study][at].model, []).append((study, at))
    for own in models.values():
        left = iter(own)
        while taken := list(islice(left, TAKEN)):
            yield taken


def _short(sides: Sides) -> tuple[Found | None, ...]:
    """Without the run itself; None for a side that is as the first."""
    own = (None if at and one is sides.seen else (one.prediction, one.rule) for at, one in enumerate(sides))
    return tuple(own)


def _whole(row: MeasuredRun, short: tuple[Found | None, ...]) -> Sides:
    assert short[0] is not None
    seen = ComparedRun(row, *short[0])
    without, fold = (seen if own is None else ComparedRun(row, *own) for own in short[1:])
    return Sides(seen, without, fold)
