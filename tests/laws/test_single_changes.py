"""Laws of ways between plans: they end where they should, through legal plans, and what is gained adds up."""

from __future__ import annotations

import functools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.oracle.diff import diff
from foretell.oracle.planning import space_of
from foretell.oracle.predict import predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator, place_of
from foretell.oracle.search import search
from foretell.oracle.single_changes import Differences
from foretell.oracle.upgrades import TIMES, hardware, jobs
from foretell.plan.text import parse
from law_examples import reached
from questions import asked

TINY = "gpt:layers=4,hidden=64,heads=4,vocab=256,seq=32"


@functools.cache
def _question() -> Request:
    """Of so few plans that nothing is compiled for them."""
    return asked(TINY, "8xh100", 4, only=("dp", "tp", "pp", "cp", "recompute"))[0]


@functools.cache
def _trial() -> PlanEvaluator:
    return PlanEvaluator(_question())


@functools.cache
def _plans() -> tuple[str, ...]:
    plans = search(space_of(_question())).plans
    return tuple(plans[at].plan for at in range(0, len(plans), 7))


pairs = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))


@pytest.mark.reaches(another=10)
@given(pairs)
def test_a_way_ends_at_the_other_plan_through_legal_plans(places: tuple[int, int]) -> None:
    first, second = (parse(_plans()[at % len(_plans())]) for at in places)
    trial = _trial()
    found = diff(trial.request, first, second)
    assert bool(found.path) == (first != second)
    reached("another" if found.path else "the same")
    for step in found.path:
        plan = parse(step.plan)
        assert trial.legal(plan) and plan.ranks == 8
        assert step.step_seconds == predict(trial.setting(plan), trial.cluster).step_seconds
    if found.path:
        assert found.path[-1].plan == str(second)
        total = math.fsum(step.gain_seconds for step in found.path)
        assert total == pytest.approx(found.first.step_seconds - found.second.step_seconds, abs=1e-12)
    changed = [what for step in found.path for what in step.changes]
    assert sorted(changed) == sorted(one.what for one in found.differences)
    assert {len(step.changes) for step in found.path if step.changes not in found.together} <= {1}


@given(pairs)
def test_differences_are_all_or_nothing_at_their_ends(places: tuple[int, int]) -> None:
    first, second = (parse(_plans()[at % len(_plans())]) for at in places)
    between = Differences(first, second)
    assert between.plan(frozenset()) == first
    assert between.plan(frozenset(range(len(between.changes)))) == second
    for at in range(len(between.changes)):
        assert between.plan(frozenset({at})) != first, between.told(at)


def test_groups_and_grids_come_with_their_ranks() -> None:
    between = Differences(parse("dp2 tp4 +bf16"), parse("dp4:zero3,shard2 +bf16"))
    assert [between.told(at) for at in range(2)] == ["TP / 4, DP x 4", "dp to dp4:zero3,shard2"]
    assert str(between.plan(frozenset({1}))) == "dp2:zero3 tp4 +bf16"
    assert str(between.plan(frozenset({0}))) == "dp8 +bf16"


def test_axes_in_another_order_are_one_change() -> None:
    between = Differences(parse("tp2 dp4"), parse("dp4 tp2"))
    assert len(between.changes) == 1 and between.told(0) == "axes in the order dp tp"


def test_other_numbers_of_ranks_are_a_change_too() -> None:
    between = Differences(parse("dp8 +m2"), parse("dp6"))
    assert [between.told(at) for at in range(2)] == ["DP x 3/4", "1 micro-batch instead of 2"]


# Other hardware. --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["dp8:zero3 +bf16", "dp16 +m2 +bf16", "pp2:1f1b dp4 tp2 +m4 +bf16"])
def test_better_hardware_is_never_slower(plan: str) -> None:
    question = asked("gpt:layers=4,hidden=512,heads=8,vocab=4096,seq=256", "16xh100", 64)[0]
    here = PlanEvaluator(question)
    last = here.predicted(parse(plan))
    for knob in hardware(question.cluster):
        before = last.step_seconds
        for times in TIMES:
            changed = knob.changed(question, times)
            assert changed is not None
            step = here.elsewhere(changed).predicted(parse(plan))
            assert step.step_seconds <= before * (1 + 1e-12), knob.name
            assert (step.usable == last.usable) == (knob.name != "memory")
            before = step.step_seconds


def test_each_thing_of_a_cluster_is_changed_alone() -> None:
    question = asked(TINY, "16xh100", 64)[0]
    old = question.cluster
    changed = {knob.name: knob.changed(question, 2.0) for knob in hardware(old)}
    assert all(one is not None for one in changed.values())
    clusters = {name: place_of(one).cluster for name, one in changed.items() if one is not None}
    assert clusters["memory"].device.memory_bytes == 2 * old.device.memory_bytes
    assert clusters["memory bandwidth"].device.memory_bandwidth == 2 * old.device.memory_bandwidth
    assert clusters["compute rate"].device.matrix_rate("bf16") == 2 * old.device.matrix_rate("bf16")
    for level in old.levels:
        wide = clusters[f"{level.name} bandwidth"]
        quick = clusters[f"{level.name} latency"]
        at = old.levels.index(level)
        assert wide.levels[at].link.bandwidth == 2 * level.link.bandwidth
        assert quick.levels[at].link.latency_seconds == level.link.latency_seconds / 2
        assert wide.levels[1 - at] == old.levels[1 - at] and wide.device == old.device
    assert len(clusters) == 3 + 2 * len(old.levels)
    assert len({cluster.text for cluster in clusters.values()}) == len(clusters)


def test_jobs_change_by_whole_numbers() -> None:
    question = asked("gpt:layers=4,hidden=64,heads=4,vocab=256", "8xh100", 3, seq=32)[0]
    batch, sequence = jobs(question)
    assert batch.changed(question, 0.5) is None
    longer = sequence.changed(question, 2.0)
    assert longer is not None and longer.seq == 64
    assert [knob.name for knob in jobs(asked(TINY, "8xh100", 8)[0])] == ["batch"]  # its text says how long they are
    assert [knob.name for knob in jobs(asked("resnet18", "8xh100", 8)[0])] == ["batch"]
