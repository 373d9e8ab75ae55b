"""What the search offers for a trainer, its configuration says; what it leaves out for that, it cannot say."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

import msgspec
import pytest

from foretell.dialects import Dialect, Launch, dialect, put_together, read, recipe_of, write
from foretell.errors import BadInput
from foretell.oracle.layouts import layouts, plainer
from foretell.oracle.planning import PlanningAnswer, answered
from foretell.oracle.priced_plans import Candidate
from foretell.oracle.recommend import recommend
from foretell.oracle.refinement import refine
from foretell.oracle.space import Space, Way
from foretell.plan.offered import cannot_say, says_number
from foretell.plan.plan import Plan
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from law_examples import reached
from questions import asked

DIALECTS = {
    "torchtitan": ("torchtitan", "torchtitan-toml"),
    "megatron-core": ("megatron-lm", "megatron-bridge"),
    "nemo": ("nemo",),
    "deepspeed": ("deepspeed",),
    "nanotron": ("nanotron",),
}
"""Trainers that have configurations of their own; `pytorch` and `fsdp` are scripts, which say anything."""

QUESTIONS = (("llama3-8b", "16xh100", 64), ("llama3.2-3b", "16xh100", 32), ("mixtral-8x7b", "16xh100", 32))
"""Layers that divide among all stages, 28 that do not, and experts."""

CASES = [(name, *question) for name in DIALECTS for question in QUESTIONS]

OTHERS = 200
"""Plans of each search that are neither the best nor on the front."""

WIDER = 150
"""Plans of each search without the rule, for the converse."""


@functools.cache
def found(name: str, model: str, on: str, batch: int) -> PlanningAnswer:
    (question,) = asked(model, on, batch, trainer=name, exhaustive=True)
    return refine(answered(question))


def shown(answer: PlanningAnswer) -> list[str]:
    """All plans that an answer names: recommended, fastest, smaller, those after it, the front, the best of each mesh,
    the plainest."""
    result = answer.found
    plain = plainer(result)
    meshes = [one.plan for one in layouts(result, "time")]
    beside = recommend(answer).found
    named = (plain, beside.best, beside.fastest, beside.smaller)
    told: list[Candidate] = [*result.top, *result.pareto, *meshes, *(one for one in named if one is not None)]
    return list(dict.fromkeys(one.plan for one in told))


def check_written(answer: PlanningAnswer, model: str, plan: Plan, own: Dialect) -> None:
    """A file has the plan in it, but for figures that it tells to be elsewhere."""
    recipe = recipe_of(answer.space.setting(plan), model, answer.space.cluster)
    assert put_together(recipe) == plan
    written = write(own, recipe)
    again = read(own, own.format.read(written.text), Launch(recipe.ranks, recipe.batch), "the file")
    elsewhere = {one.figure: getattr(recipe, one.figure) for one in written.unsaid}
    assert put_together(msgspec.structs.replace(again, **elsewhere)) == plan


@pytest.mark.reaches(shown=15, others=OTHERS)
@pytest.mark.parametrize(("name", "model", "on", "batch"), CASES)
def test_what_is_offered_is_written(name: str, model: str, on: str, batch: int) -> None:
    answer = found(name, model, on, batch)
    priced = answer.found.plans
    others = [priced[at].plan for at in random.Random(f"{name} {model}").sample(range(len(priced)), OTHERS)]
    for kind, plans in (("shown", shown(answer)), ("others", others)):
        for text in plans:
            for own in DIALECTS[name]:
                check_written(answer, model, parse(text), dialect(own))
            reached(kind)


def wider(space: Space, count: int) -> Iterator[Plan]:
    """Random plans of a space where the trainer's configuration can say everything, with what hosts can take."""
    everything = msgspec.structs.replace(space.trainer, offered=trainer("pytorch").offered)
    wishes = msgspec.structs.replace(space.wishes, also=("offload",))
    whole = Space(space.graph, space.job, everything, space.cluster, space.precision.name, wishes)
    draw, meshes = random.Random(space.trainer.name), list(whole.meshes())
    while count:
        axes = draw.choice(meshes)
        ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        way = Way(draw.choice(whole.pipelines(ranks)), draw.choice(whole.counts(axes)), draw.choice(whole.policies))
        if whole.schedulable(way.pipeline, way.microbatches, False) and whole.allowed(axes, way.policies):
            yield whole.plan(axes, way)
            count -= 1


def is_written(answer: PlanningAnswer, model: str, plan: Plan, own: Dialect) -> bool:
    try:
        write(own, recipe_of(answer.space.setting(plan), model, answer.space.cluster))
    except BadInput:
        return False
    return True


@pytest.mark.reaches(written=20, refused=20)
@pytest.mark.parametrize(("name", "model", "on", "batch"), CASES)
def test_what_is_left_out_cannot_be_written(name: str, model: str, on: str, batch: int) -> None:
    answer = found(name, model, on, batch)
    offered = trainer(name).offered
    for plan in wider(answer.space, WIDER):
        refused = list(cannot_say(offered, plan))
        writes = [is_written(answer, model, plan, dialect(own)) for own in DIALECTS[name]]
        pipeline = plan.axis(Pipeline)
        if pipeline is not None and not pipeline.split and not says_number(offered, pipeline):
            continue  # the same stages are offered with the layers of each
        assert all(writes) == (not refused), (str(plan), refused)
        reached("refused" if refused else "written")
