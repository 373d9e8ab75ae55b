"""Constants that were chosen on the parts of measured steps, and a study under several conditions."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable

import msgspec
import pytest

from foretell.oracle.predict import Prediction, predict
from foretell.plan.setting import Setting
from foretell.plan.trainer import trainer
from foretell.validation.accuracy import accuracies
from foretell.validation.conditions import (
    Condition,
    ForetoldParts,
    as_foretold,
    conditions,
    left_out,
    with_layers,
)
from foretell.validation.evaluate import ComparedRun, compare
from foretell.validation.in_view import in_view
from foretell.validation.published import files
from foretell.validation.step_parts import CONSTANTS, PartConstant, choose, parts_of, with_constants
from foretell.validation.study import MeasuredRun, read


@functools.cache
def runs() -> tuple[MeasuredRun, ...]:
    return read(files("paradl")[0]).rows


@functools.cache
def compared() -> tuple[ComparedRun, ...]:
    return tuple(compare(runs(), predict))


@functools.cache
def found() -> dict[str, Condition]:
    return {one.name: one for one in conditions(compared())}


@functools.cache
def unseen() -> tuple[ComparedRun, ...]:
    """Each model with constants of the others."""
    return tuple(left_out(compared()))


def shipped(constant: PartConstant) -> float:
    value = trainer("chainer").constant(constant.key)
    return dict(value)[constant.word] if constant.word else value


def test_parts_are_those_of_the_figure() -> None:
    told = [row for row in runs() if row.parts]
    assert len(told) == 99
    for row in told:
        assert row.parts is not None and row.claimed_parts is not None
        assert row.parts.compute + row.parts.messages == pytest.approx(row.step_seconds, rel=0.01)
        assert row.claimed_parts.compute + row.claimed_parts.messages == pytest.approx(row.claimed_seconds, rel=0.01)


def test_constants_that_ship_are_those_that_parts_say() -> None:
    chosen = choose(runs())
    assert set(chosen) == set(CONSTANTS["chainer"])
    for constant, value in chosen.items():
        assert shipped(constant) == pytest.approx(value, rel=0.02), constant


def test_they_are_named_as_chosen() -> None:
    named = {slot.key for slot in in_view() if slot.owner == "chainer"}
    assert named == {constant.key for constant in CONSTANTS["chainer"]}


def test_a_constant_that_runs_had_is_found_again() -> None:
    """Where predictions with other constants are taken for measurements, those constants are chosen."""
    constant = CONSTANTS["chainer"][3]
    rows = [row for row in runs() if row.subsets == ("data", "VGG16")][:3]
    made = []
    for one in compare(rows, lambda setting, cluster: predict(_with(setting, constant, 0.8), cluster)):
        assert isinstance(one.prediction, Prediction)
        made.append(msgspec.structs.replace(one.row, parts=parts_of(one.prediction)))
    assert choose(made)[constant] == pytest.approx(0.8, rel=1e-6)


def test_what_no_run_shows_is_the_trainer_below() -> None:
    """So that a model is not predicted with constants that it was in view of."""
    found = choose(row for row in runs() if row.subsets == ("data", "VGG16"))
    assert {one.word or one.key: found[one] for one in CONSTANTS["chainer"] if one.part == "compute"} == {
        "any": 0.0,
        "dp": 0.0,
        "splits.halo": 0.0,
    }
    assert found[CONSTANTS["chainer"][4]] == 1.0 and 0.5 < found[CONSTANTS["chainer"][3]] < 0.6


def _with(setting: Setting, constant: PartConstant, value: float) -> Setting:
    return msgspec.structs.replace(setting, trainer=with_constants(setting.trainer, {constant: value}))


def test_models_left_out_are_predicted_well_enough_to_choose() -> None:
    """The aims: from data sheets 28 of 39 choices, a loss of 6 %, 82 %, parts within 20 %; with the source's own
    seconds of layers 33 of 39, 3 %, 88 %."""
    names = ("each model left out", "the source's layer seconds", "the source's own")
    sheet, layers, theirs = (found()[name] for name in names)
    assert sheet.choices == layers.choices == theirs.choices == 39
    assert sheet.right >= 28 and (sheet.loss or 0) < 0.06 and (sheet.accuracy or 0) > 0.82
    assert (sheet.compute or 1) < 0.2 and (sheet.messages or 1) < 0.2
    assert layers.right >= 33 and (layers.loss or 1) < 0.03 and (layers.accuracy or 0) > 0.88
    assert theirs.right == 33 and theirs.accuracy == pytest.approx(0.868, abs=0.002)


def test_pipelines_are_nearer_than_the_source_from_its_own_layer_seconds() -> None:
    """90.3 % are its own; from data sheets 75 %, since one V100 of torchgpipe is 13 to 37 % too slow here."""
    own = _by_strategy(with_layers(unseen()))["pipeline"]
    theirs = [1 - abs(one.row.claimed_seconds / one.row.step_seconds - 1) for one in _runs_of("pipeline")]
    assert statistics.fmean(theirs) == pytest.approx(0.903, abs=0.001)
    assert own > 0.95
    assert 0.73 < _by_strategy(map(ForetoldParts._make, ((one, None) for one in compared())))["pipeline"] < 0.78


def test_no_single_factor_a_model_reaches_ninety_per_cent() -> None:
    """The aim, missed: even one factor for all of a model's steps, the best in hindsight of all of its rows, stays
    below. What is left lies between strategies. A correction that scales parts of a step apart is not bounded by it."""
    groups: dict[tuple[str, str], list[ComparedRun]] = {}
    for one in unseen():
        groups.setdefault((one.row.model, one.row.trainer), []).append(one)
    best: list[ForetoldParts] = []
    for own in groups.values():
        scaled = ([_times(one, 0.5 + at / 40) for one in own] for at in range(101))
        best += max(scaled, key=lambda some: statistics.fmean(_by_strategy(some).values()))
    hindsight = statistics.fmean(_by_strategy(best).values())
    anchored = found()["anchored by a step"].accuracy or 0.0
    assert 0.85 < anchored < hindsight < 0.90


def _times(one: ComparedRun, factor: float) -> ForetoldParts:
    assert one.time is not None
    return as_foretold(one, factor * one.time.predicted, None)


def _by_strategy(some: Iterable[ForetoldParts]) -> dict[str, float]:
    found = accuracies(one.run for one in some)
    return {one.name: one.ours for one in found[:-1]}


def _runs_of(strategy: str) -> list[ComparedRun]:
    return [one for one in compared() if one.row.subsets[0] == strategy]


def test_parts_are_scored_of_every_run_that_tells_them() -> None:
    """No others go out than the anchors, whatever is left of their steps when parts are explained."""
    for name, one in found().items():
        anchors = 115 - one.runs if name.startswith("anchored") else 0
        assert anchors < 10 and 99 - anchors <= one.apart <= 99, name


def test_pipelines_are_an_interval() -> None:
    """Micro-batches are not stated: every run with several ranks is predicted with all that it may have had."""
    own = [one for one in compared() if one.row.subsets[0] == "pipeline"]
    assert len(own) == 9 and [len(one.row.others) for one in own] == [0, 2, 2] * 3
    assert all(one.row.assumed for one in own if one.row.others)


def test_other_studies_have_no_conditions() -> None:
    assert conditions(compare(read(files("vtrain_multi")[0]).rows[:2], predict)) == []
