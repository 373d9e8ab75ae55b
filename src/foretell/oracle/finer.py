"""What the search does not vary, chosen for the plans that lead it: the layers of each stage of a pipeline.

The search prices all plans with stages as the trainer cuts them. Other stages are too many to be looked at for each of
them, and they seldom help a plan that is far behind. So they are chosen for the plans in front: those that are fast
enough to win, and those that were faster but need a little more memory than there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

import msgspec
import numpy

from foretell.oracle.planning import Answer
from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.oracle.search import Finer, Found
from foretell.oracle.stages import BestSplit, best_split, may_choose
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.text import parse

LEADING = 12
"""Plans that fit whose stages are chosen."""

TIGHT = 6
"""Plans that need more memory than there is whose stages are chosen."""

FARTHEST = 1.3
"""How much slower than the best a plan may be: a vocabulary as large as some layers makes a stage so much longer."""

ROOM = 1.25
"""How much more memory than there is it may need: layers go from the fullest rank to others."""

PASSED = 2_000
"""Plans in the order of their steps that are looked at for such ones."""


def finer(answer: Answer) -> Answer:
    """The answer with the best stages for the plans that lead it; Ctrl-C ends the choice with the best so far."""
    found = answer.found
    chosen, tried = _uneven(answer)
    if not tried:
        return answer
    if chosen is None:
        return answer._replace(found=_with(found, finer=Finer(what="stages", before=found.best, tried=tried)))
    best = Candidate(chosen.plan, chosen.step_seconds, chosen.memory_bytes)
    told = Finer(
        what="stages",
        plan=chosen.plan,
        before=found.best,
        step_seconds=chosen.step_seconds,
        memory_bytes=chosen.memory_bytes,
        least_seconds=chosen.least_seconds,
        tried=tried,
    )
    smaller = tuple(one for one in found.pareto if one.memory_bytes < best.memory_bytes)
    top = (best, *found.top)[: max(1, answer.question.top)]
    return answer._replace(found=_with(found, best=best, top=top, pareto=(best, *smaller), finer=told))


def _uneven(answer: Answer) -> tuple[BestSplit | None, int]:
    """The fastest plan with stages of its own, if it is faster than all others; and how many were tried."""
    found, best, tried = answer.found, None, 0
    reached = found.best.step_seconds if found.best else float("inf")
    try:
        for setting in _leading(answer, reached):
            tried += 1
            chosen = best_split(setting, answer.question.cluster, found.capacity, reached)
            if chosen is not None and chosen.step_seconds < reached:
                best, reached = chosen, chosen.step_seconds
    except KeyboardInterrupt:
        pass
    return best, tried


def _leading(answer: Answer, reached: float) -> Iterator[Setting]:
    """Plans in front whose stages may be chosen."""
    plans, seen = answer.found.plans, set[Hashable]()
    left = {True: LEADING, False: TIGHT}
    fixed = answer.space.fixed.axis(Pipeline)
    if fixed is not None and fixed.split:  # the user cuts it
        return
    for at in _in_front(plans, reached):
        plan, fits = parse(plans[at].plan), bool(plans.fits[at])
        if plan.axis(Pipeline) is None or _shape(plan) in seen or not left[fits]:
            continue
        setting = answer.space.setting(plan)
        if not may_choose(setting):
            return
        if fits:
            seen.add(_shape(plan))
        left[fits] -= 1
        yield setting


def _in_front(plans: PricedPlans, reached: float) -> list[int]:
    """The plans that may win with other stages, the fastest first."""
    near = numpy.flatnonzero((plans.memory <= ROOM * plans.capacity) & (plans.seconds <= FARTHEST * reached))
    return near[numpy.argsort(plans.seconds[near], kind="stable")][:PASSED].tolist()


def _shape(plan: Plan) -> Hashable:
    """What decides how long stages are: plans that differ only in how they store weights are cut alike."""
    axes = tuple(axis if axis.word != "dp" else axis.world for axis in plan.axes)
    return axes, plan.microbatches, plan.policy(Recompute)


def _with(found: Found, **changes: object) -> Found:
    """The same with some fields replaced, and its plans kept."""
    changed = msgspec.structs.replace(found, **changes)
    vars(changed).update(vars(found))
    return changed
