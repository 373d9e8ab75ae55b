"""A study whose source predicted its own runs, scored under several conditions: parts and choices beside totals.

The source's own predictions knew the seconds of its layers; ours have them from data sheets. Both are fair questions,
and a third is how far one measured step of each model goes. So each condition is a line: accuracy of totals, errors of
computation and messages, and how often the fastest plan would have been chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from foretell.oracle.anchored import anchored
from foretell.oracle.anchors import COMPUTE, EXPOSED, Anchor
from foretell.oracle.predict import Prediction
from foretell.validation.accuracy import accuracies
from foretell.validation.evaluate import ComparedPrediction, ComparedRun, EitherPrediction, compare
from foretell.validation.regret import regrets
from foretell.validation.step_parts import choose, parts_of, predictor_with
from foretell.validation.study import MeasuredRun, StepParts

DRAWS: Final = 21
"""Runs of each model that are tried as an anchor, evenly taken."""

RIGHT: Final = 1e-9
"""Loss of a choice up to which it is the right one."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What predictions of a study are worth under one condition."""

    name: str
    runs: int
    apart: int  # runs of these whose parts were measured and foretold
    accuracy: float | None  # of totals, the mean of strategies
    compute: float | None  # mean absolute error of computation, where it is measured apart
    messages: float | None  # the same of messages
    choices: int
    right: int  # choices of the plan that was fastest
    loss: float | None  # measured time of what was chosen over the fastest, less one: the mean


class ForetoldParts(NamedTuple):
    """A run, and the parts that its step was foretold to have: None where these are not told apart."""

    run: ComparedRun
    parts: StepParts | None


def conditions(compared: Sequence[ComparedRun]) -> list[Condition]:
    """Every condition; none where no source tells the parts of its steps and predicted them."""
    if not any(one.row.parts and one.row.claimed_parts for one in compared):
        return []
    told = [one for one in compared if one.time is not None and one.row.claimed_seconds]
    unseen = left_out(told)
    return [
        _scored("each model left out", _foretold(unseen)),
        _scored("in view", _foretold(told)),
        _scored("the source's layer seconds", list(with_layers(unseen))),
        _anchored("anchored by a step", unseen, lambda row: {}),
        _anchored("anchored by its parts", unseen, _parts),
        _scored("the source's own", [as_foretold(one, one.row.claimed_seconds, one.row.claimed_parts) for one in told]),
    ]


def left_out(told: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Each model predicted with the constants that the parts of the others say."""
    rows = [one.row for one in told]
    found: dict[str, ComparedRun] = {}
    for model in dict.fromkeys(row.model for row in rows):
        constants = choose(row for row in rows if row.model != model)
        own = compare((row for row in rows if row.model == model), predictor_with(constants))
        found |= {one.row.id: one for one in own}
    return [found[row.id] for row in rows]


def _foretold(compared: Iterable[ComparedRun]) -> list[ForetoldParts]:
    """Runs with the parts of our own predictions; those of several plans that a run may have had are not told apart."""
    found = ((one, one.prediction) for one in compared)
    return [ForetoldParts(one, parts_of(own) if isinstance(own, Prediction) else None) for one, own in found]


def with_layers(unseen: Sequence[ComparedRun]) -> Iterator[ForetoldParts]:
    """Computation as the source says it, from seconds that it measured of its layers; messages are ours.

    Of pipelines the source tells no parts, but what it says of one rank is what it measured of all layers together.
    """
    slower = dict(_alone(unseen))
    for one in unseen:
        longer = slower.get((one.row.model, one.row.trainer))
        if isinstance(one.prediction, Prediction) and one.row.claimed_parts:
            compute, messages = one.row.claimed_parts.compute, parts_of(one.prediction).messages
            yield as_foretold(one, compute + messages, StepParts(compute, messages))
        elif longer is not None:
            each = one.prediction.each if isinstance(one.prediction, EitherPrediction) else (one.prediction,)
            own = [parts_of(found) for found in each if isinstance(found, Prediction)]
            yield as_foretold(
                one, statistics.geometric_mean(longer * parts.compute + parts.messages for parts in own), None
            )


def _alone(unseen: Iterable[ComparedRun]) -> Iterator[tuple[tuple[str, str], float]]:
    """By model and software, what the source says of all layers on one rank, over ours."""
    for one in unseen:
        if isinstance(one.prediction, Prediction) and one.prediction.ranks == 1:
            yield (one.row.model, one.row.trainer), one.row.claimed_seconds / one.prediction.step_seconds


def as_foretold(one: ComparedRun, seconds: float, parts: StepParts | None) -> ForetoldParts:
    """The run as if this had been predicted."""
    found = one.prediction.each[0] if isinstance(one.prediction, EitherPrediction) else one.prediction
    assert isinstance(found, Prediction)
    return ForetoldParts(one._replace(prediction=msgspec.structs.replace(found, step_seconds=seconds)), parts)


def _parts(row: MeasuredRun) -> dict[str, float]:
    return {COMPUTE: row.parts.compute, EXPOSED: row.parts.messages} if row.parts else {}


def _anchored(name: str, unseen: Sequence[ComparedRun], told: Callable[[MeasuredRun], dict[str, float]]) -> Condition:
    """One run of each model and software corrects the others, and is not counted: the middle of several draws."""
    groups: dict[tuple[str, str], list[ComparedRun]] = {}
    for one in unseen:
        groups.setdefault((one.row.model, one.row.trainer), []).append(one)
    drawn = [
        _scored(name, _foretold(one for own in groups.values() for one in _corrected(own, at, told)))
        for at in range(DRAWS)
    ]
    return sorted(drawn, key=lambda one: one.accuracy or 0.0)[DRAWS // 2]


def _corrected(
    own: Sequence[ComparedRun], draw: int, told: Callable[[MeasuredRun], dict[str, float]]
) -> Iterator[ComparedRun]:
    """The runs of one model and software without the drawn one, one that says what it ran."""
    stated = [one for one in own if isinstance(one.prediction, Prediction)]
    same = stated[draw * len(stated) // DRAWS]
    known, row = same.prediction, same.row
    assert isinstance(known, Prediction)
    anchor = Anchor(form="study", asked={"plan": known.plan}, step_seconds=row.step_seconds, parts=told(row))

    def corrected(found: ComparedPrediction | None) -> ComparedPrediction | None:
        return anchored(found, [anchor], (), lambda _: known) if isinstance(found, Prediction) else found

    for one in own:
        if one is not same and isinstance(one.prediction, EitherPrediction):
            each = tuple(found for found in map(corrected, one.prediction.each) if found is not None)
            yield one._replace(prediction=EitherPrediction(each))
        elif one is not same:
            yield one._replace(prediction=corrected(one.prediction))


def _scored(name: str, found: Sequence[ForetoldParts]) -> Condition:
    runs = [one.run for one in found]
    losses = [pick.loss_by_time for pick in regrets(runs).picks]
    apart = [(one.parts, one.run.row.parts) for one in found if one.parts and one.run.row.parts]
    mean = accuracies(runs)
    return Condition(
        name=name,
        runs=len(found),
        apart=len(apart),
        accuracy=mean[-1].ours if mean else None,
        compute=_mean(abs(ours.compute / own.compute - 1) for ours, own in apart),
        messages=_mean(abs(ours.messages / own.messages - 1) for ours, own in apart),
        choices=len(losses),
        right=sum(loss < RIGHT for loss in losses),
        loss=_mean(losses),
    )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None
