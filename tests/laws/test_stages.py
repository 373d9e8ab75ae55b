"""Laws of the best stages: what is found is what a loop over all splits finds, and no split is below its bound."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.hardware.catalog import cluster
from foretell.oracle.planning import PlanningAnswer, answered, space_of
from foretell.oracle.predict import predict
from foretell.oracle.refinement import refine
from foretell.oracle.stage_figures import Range, Split, StagesByLayers, ranges, with_split
from foretell.oracle.stages import SLOWEST, BestSplit, best_split, bounds, may_choose
from foretell.plan.facts import facts
from foretell.plan.fitness import fits
from foretell.plan.schedule import find, schedules
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.text import parse
from questions import asked

ON = "8xh100"
HOST_BOUND = "gpt:layers=6,hidden=64,heads=4,vocab=256,seq=32"
LARGE_HEAD = "llama:layers=7,hidden=2048,heads=16,kv_heads=8,ffn=5632,vocab=128256,seq=1024"
ACTIVE = "llama:layers=9,hidden=512,heads=8,kv_heads=8,ffn=1408,vocab=256,seq=4096"
MODELS = (HOST_BOUND, LARGE_HEAD, "resnet18")
SEVERAL = tuple(name for name, one in schedules().items() if one.flushes)


@functools.cache
def setting(model: str, plan: str, batch: int, trainer: str = "pytorch") -> Setting:
    (question,) = asked(model, ON, batch, trainer=trainer)
    return space_of(question).setting(parse(f"{plan} +bf16"))


def splits(layers: int, parts: int) -> Iterator[Split]:
    for cuts in itertools.combinations(range(1, layers), parts - 1):
        yield tuple(stop - first for first, stop in itertools.pairwise((0, *cuts, layers)))


@functools.cache
def predicted(asked_about: Setting) -> dict[Split, tuple[float, float]]:
    """Seconds and bytes of every split there is."""
    pipeline = asked_about.plan.axis(Pipeline)
    assert pipeline is not None
    schedule = find(pipeline.schedule)
    parts = schedule.parts(pipeline.ranks, pipeline.chunks or schedule.least_chunks)
    found: dict[Split, tuple[float, float]] = {}
    for split in splits(facts(asked_about.graph).layers, parts):
        plan = with_split(asked_about.plan, split)
        step = predict(msgspec.structs.replace(asked_about, plan=plan), cluster(ON))
        found[split] = step.step_seconds, step.memory_bytes
    return found


def check(asked_about: Setting, capacity: float, inexact: float = 1e-9) -> BestSplit | None:
    """Hold an answer against all splits; `inexact`: what long steps may be short of, see docs/timeline.md."""
    every = predicted(asked_about)
    found = best_split(asked_about, cluster(ON), capacity)
    usual = StagesByLayers(asked_about, cluster(ON)).split
    fitting = [one for one in every.values() if one[1] <= capacity and one[0] < SLOWEST * every[usual][0]]
    if found is None:
        assert not fitting
        return None
    least = min(seconds for seconds, _ in fitting)
    assert found.step_seconds == pytest.approx(least, rel=1e-9)
    assert (found.step_seconds, found.memory_bytes) == every[found.split]
    assert found.memory_bytes <= capacity
    assert found.least_seconds <= least * (1 + inexact)
    assert found.usual.split == usual and (found.usual.step_seconds, found.usual.memory_bytes) == every[usual]
    assert found.usual.memory_bytes > capacity or found.gain >= 0
    return found


def test_a_large_head_is_worth_several_layers_and_the_best_split_is_proven() -> None:
    found = check(setting(LARGE_HEAD, "pp3:1f1b dp2 +m8", 16), float("inf"))
    assert found is not None
    assert found.split[-1] < found.usual.split[-1]
    assert found.gain > 0.02
    assert found.gap == 0
    assert found.priced < len(predicted(setting(LARGE_HEAD, "pp3:1f1b dp2 +m8", 16)))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("schedule", SEVERAL)
def test_the_best_split_is_that_of_a_loop_over_predict(model: str, schedule: str) -> None:
    check(setting(model, f"pp2:{schedule} dp4 +m4", 16), float("inf"))


@given(
    st.sampled_from(MODELS),
    st.sampled_from(["pp3:1f1b", "pp4:gpipe", "pp4:1f1b", "pp3:zb-h1", "pp2:interleaved,v2"]),
    st.sampled_from(["", " dp2", " dp2:zero1", " dp2:zero3"]),
    st.sampled_from(["", " +recompute:block", " +recompute:first3", " +no-overlap", " +offload:optimizer"]),
    st.floats(0, 1),
)
def test_memory_is_kept_and_no_split_is_below_the_bound(
    model: str, pipeline: str, data: str, policy: str, tight: float
) -> None:
    one = setting(model, f"{pipeline}{data} +m4{policy}", 16)
    sizes = sorted({memory for _, memory in predicted(one).values()})
    check(one, sizes[round(tight * (len(sizes) - 1))])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("pipeline", ["pp4:1f1b", "pp3:gpipe", "pp3:zb-h1", "pp2:interleaved,v2", "pp2:zb-v"])
def test_every_split_takes_its_bound_at_least(model: str, pipeline: str) -> None:
    one = setting(model, f"{pipeline} dp2 +m8", 16)
    bound = bounds(StagesByLayers(one, cluster(ON)), float("inf"), float("inf"))
    for split, (seconds, _) in predicted(one).items():
        assert 0.5 * seconds < bound.of(split) <= seconds * (1 + 1e-9), split


@pytest.mark.parametrize("model", [HOST_BOUND, LARGE_HEAD])
@pytest.mark.parametrize("pipeline", ["pp2:1f1b", "pp3:gpipe", "pp2:interleaved,v2"])
def test_long_steps(model: str, pipeline: str) -> None:
    check(setting(model, f"{pipeline} +m60", 60), float("inf"), inexact=0.01)


@given(st.sampled_from(MODELS), st.data())
def test_a_range_costs_the_same_wherever_the_rest_is_cut(model: str, data: st.DataObject) -> None:
    """The figures of a stage, found inside some split, are those of any split that has it."""
    one = setting(model, "pp4:1f1b dp2 +m4", 16)
    split = data.draw(st.sampled_from(sorted(predicted(one))))
    stages = StagesByLayers(one, cluster(ON))
    memory = [stages.of(rank, own).memory[rank] for rank, own in enumerate(ranges(split))]
    assert max(memory) == predicted(one)[split][1]
    for rank, own in enumerate(ranges(split)):
        found = stages.of(rank, own)
        assert found.busy >= stages.at_least(own) * (1 - 1e-9) > 0
        assert max(found.busy, found.launched) >= stages.alone_at_least(own) * (1 - 1e-9)


def test_longer_ranges_are_slower_and_larger() -> None:
    """The search leaves out all longer ones when one is too slow or too large."""
    for model in MODELS:
        stages = StagesByLayers(setting(model, "pp3:1f1b dp2 +m4", 16), cluster(ON))
        for first in range(1, stages.layers - 2):
            found = [stages.of(1, Range(first, stop)) for stop in range(first + 1, stages.layers)]
            for shorter, longer in itertools.pairwise(found):
                assert shorter.busy <= longer.busy
                assert all(one <= other for one, other in zip(shorter.memory, longer.memory, strict=True))


def test_stages_that_the_trainer_leaves_without_layers_are_no_choice_and_no_harm() -> None:
    """DeepSpeed puts a large head on a stage of its own; a plan cannot say so."""
    one = setting(LARGE_HEAD, "pp4:1f1b +m8", 16, "deepspeed")
    found = best_split(one, cluster(ON), float("inf"))
    assert found is not None and 0 in found.usual.split
    assert found.step_seconds <= found.usual.step_seconds
    assert fits(msgspec.structs.replace(one, plan=parse(found.plan)), cluster(ON))


def test_only_where_the_trainer_leaves_the_choice() -> None:
    assert may_choose(setting(LARGE_HEAD, "pp2:1f1b +m4", 16))
    assert may_choose(setting(LARGE_HEAD, "pp2:1f1b +m4", 16, "megatron-core"))
    assert not may_choose(setting(LARGE_HEAD, "pp2:1f1b +m4", 16, "nanotron"))
    assert not may_choose(setting(LARGE_HEAD, "dp2 +m4", 16))


# In a search. ----------------------------------------------------------------------------------------


@functools.cache
def answer(model: str, most: float = 0.0, trainer: str = "pytorch", fixed: str = "") -> PlanningAnswer:
    return answered(asked(model, ON, 16, trainer=trainer, max_memory=most, only=("dp", "pp"), fix=fixed)[0])


@pytest.mark.parametrize("model", [HOST_BOUND, LARGE_HEAD])
@pytest.mark.parametrize("trainer", ["pytorch", "megatron-core"])
def test_a_search_with_finer_stages_is_never_worse_and_says_what_predict_says(model: str, trainer: str) -> None:
    before = answer(model, trainer=trainer, fixed="pp4")
    after = refine(before).found
    (told,) = after.finer
    assert before.found.best is not None and after.best is not None
    assert after.best.step_seconds <= before.found.best.step_seconds
    assert told.what == "stages" and told.tried > 0
    assert told.before == before.found.best
    assert after.top[0] == after.best == after.pareto[0]
    assert all(one.memory_bytes < after.best.memory_bytes for one in after.pareto[1:])
    said = before.predicted(after.best.value)
    assert (said.step_seconds, said.memory_bytes) == (after.best.step_seconds, after.best.memory_bytes)
    assert len(after.plans) == len(before.found.plans)


def test_a_large_head_makes_uneven_stages_win() -> None:
    found = refine(answer(LARGE_HEAD, fixed="pp4:1f1b")).found
    (told,) = found.finer
    assert found.best is not None and "split=" in found.best.plan
    assert told.plan == found.best.plan
    assert told.gain > 0.005
    assert 0 <= told.gap < 0.05


def test_stages_make_a_plan_fit_that_did_not() -> None:
    """The first stage of 1F1B holds most micro-batches, so with fewer layers on it everything fits."""
    smallest = min(answer(ACTIVE, fixed="pp4:1f1b dp2 +m8").found.plans.memory)
    found = refine(answer(ACTIVE, most=0.95 * smallest, fixed="pp4:1f1b dp2 +m8")).found
    assert found.fitting == 0
    assert found.best is not None and found.best.memory_bytes <= 0.95 * smallest
    (told,) = found.finer
    assert told.before is None and told.gain == 1


def test_whoever_interrupts_gets_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    before, calls = answer(LARGE_HEAD, fixed="pp4:1f1b"), list[int]()

    def once(*given: Any) -> BestSplit | None:
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return best_split(*given)

    monkeypatch.setattr("foretell.oracle.refinement.best_split", once)
    found = refine(before).found
    assert not found.complete and len(calls) == 2
    assert found.best is not None and "split=" in found.best.plan


def test_layers_that_do_not_divide_are_cut_where_the_trainer_lets_them_be() -> None:
    """Megatron-Core refuses 7 layers on 4 stages, but not if the plan says which stage has how many."""
    found = answer(LARGE_HEAD, trainer="megatron-core", fixed="pp4")
    plans = [parse(plan) for plan, *_ in found.found.plans.rows()]
    assert plans and all(fits(found.space.setting(plan), cluster(ON)) for plan in plans)
    assert not fits(found.space.setting(with_split(plans[0], ())), cluster(ON))


def test_what_the_trainer_or_the_user_cuts_is_left_alone() -> None:
    for trainer, fixed in (("nanotron", "pp4:1f1b"), ("pytorch", "pp4:1f1b,split=2/2/2/1"), ("pytorch", "dp8")):
        assert refine(answer(LARGE_HEAD, trainer=trainer, fixed=fixed)).found.finer == ()


def test_a_split_that_is_found_is_a_legal_plan() -> None:
    one = setting(LARGE_HEAD, "pp3:1f1b dp2 +m8", 16)
    found = best_split(one, cluster(ON), float("inf"))
    assert found is not None
    plan = parse(found.plan)
    assert str(plan) == found.plan
    assert fits(msgspec.structs.replace(one, plan=plan), cluster(ON))
