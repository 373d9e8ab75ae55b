"""Which of the plans that were priced to run: the recommended one, the fastest, and one that saves memory.

*Recommended* is the simplest plan with head-room that cannot be told from the fastest: predictions of two plans on one
stack err together, but not by the last per cent (`oracle.ratios`), so a few of these are not worth a harder set-up or
a run that ends for want of memory. It is never more than `SLOWER` slower, as long as any plan with head-room is not.
*Fastest* is the optimum of the space, however full a device is. *Smaller* gives up time for a quarter of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy

from foretell.oracle.advice import harmless
from foretell.oracle.planning import OTHERS, PlanningAnswer, Watching, answered, head_room, replaced
from foretell.oracle.priced_plans import Candidate, PricedPlans, plainness
from foretell.oracle.ratios import indistinguishable
from foretell.oracle.refinement import refined_answer
from foretell.oracle.request import Request
from foretell.oracle.simplicity import simplicity

SLOWER: Final = 0.03
"""The share by which a simpler plan may be slower than the fastest."""

LESS: Final = 0.75
"""The share of the recommended plan's memory that a smaller one needs at most."""

MOST: Final = 5_000
"""Plans among which the simplest is looked for, the fastest first."""


def recommend(answer: PlanningAnswer) -> PlanningAnswer:
    """The answer with the recommended plan as its best, the fastest beside it, and one that saves memory."""
    found = answer.found
    if found.best is None or answer.question.place.mixed:  # ways to use its kinds stand side by side
        return answer
    best = recommended(answer)
    smaller = _smaller(answer, best)
    top = (best, *(one for one in found.top if one.plan != best.plan))[: max(1, len(found.top))]
    return answer._replace(found=replaced(found, best=best, fastest=found.best, smaller=smaller, top=top))


def recommended_answer(question: Request, watching: Watching | None = None) -> PlanningAnswer:
    """What `foretell plan` answers: the search, what is chosen besides, and the plan to run."""
    return recommend(refined_answer(question, watching))


def room(answer: PlanningAnswer) -> float:
    """Bytes that a plan with head-room fills at most."""
    return head_room(answer.question, answer.space, answer.found.capacity)


def recommended(answer: PlanningAnswer) -> Candidate:
    """The simplest plan with head-room that is as good as the fastest; else the fastest with head-room; else that."""
    found, limit = answer.found, room(answer)
    fastest = found.best
    assert fastest is not None
    chosen = [one for one in _refined(answer) if one.memory_bytes <= limit]
    near = [*chosen, *_fastest(found.plans, limit, (1 + SLOWER) * fastest.step_seconds)]
    as_good = [one for one in near if _as_good(one, fastest)]
    if as_good:
        return min(as_good, key=lambda one: (simplicity(one.value), one.step_seconds, one.memory_bytes, one.plan))
    roomy = [*chosen, *_fastest(found.plans, limit, float("inf"), 1)]
    return min(roomy, key=_first, default=fastest)


def _as_good(one: Candidate, fastest: Candidate) -> bool:
    close = one.step_seconds <= (1 + SLOWER) * fastest.step_seconds
    return close and (one.plan == fastest.plan or indistinguishable(one, fastest))


def _refined(answer: PlanningAnswer) -> Iterator[Candidate]:
    """Plans whose stages or parts were chosen apart from the search."""
    for one in answer.found.finer:
        if one.plan:
            yield Candidate(one.plan, one.step_seconds, one.memory_bytes)


def _fastest(plans: PricedPlans, most_bytes: float, most_seconds: float, count: int = MOST) -> list[Candidate]:
    """Plans within both limits, the fastest first."""
    near = numpy.flatnonzero((plans.memory <= most_bytes) & (plans.seconds <= most_seconds))
    order = near[numpy.lexsort((plans.memory[near], plans.seconds[near]))]
    return [plans[int(at)] for at in order[:count]]


def _smaller(answer: PlanningAnswer, best: Candidate) -> Candidate | None:
    """The fastest plan that needs much less memory. Where slow plans were left out, those of its mesh are priced."""
    limit = LESS * best.memory_bytes
    priced = [answer.found.plans, *_of_its_mesh(answer, best)]
    found = [one for plans in priced for one in _fastest(plans, limit, float("inf"), 1)]
    return min(found, key=_first, default=None)


def _of_its_mesh(answer: PlanningAnswer, best: Candidate) -> Iterable[PricedPlans]:
    question = answer.question
    if not answer.found.excluded or question.search.fixed:
        return
    fixed = " ".join(f"{axis.word}{axis.world}" for axis in best.value.axes if axis.world > 1)
    effort = msgspec.structs.replace(question.effort.shared(OTHERS), exhaustive=True)
    for one in harmless(lambda: (answered(question.changed(effort=effort).searching(fixed=fixed)),)):
        yield one.found.plans


def _first(one: Candidate) -> tuple[float, float, tuple[int, int, str]]:
    return one.step_seconds, one.memory_bytes, plainness(one)
