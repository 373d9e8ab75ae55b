"""What the search does not vary, chosen for the plans that lead it.

The search prices all plans with stages as the trainer cuts them, and with every axis for the whole model. Other stages
and parts are too many to be looked at for each of them, and they seldom help a plan that is far behind. So they are
chosen for the plans in front: those that are fast enough to win, and those that were faster but need a little more
memory than there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

import msgspec
import numpy

from foretell.oracle.part_choice import best_part, open_axes
from foretell.oracle.planning import PlanningAnswer, Watching, answered, head_room, replaced
from foretell.oracle.priced_plans import Candidate, PricedPlans, plainness
from foretell.oracle.recompute_choice import best_count, may_count
from foretell.oracle.request import Request
from foretell.oracle.search import ROOM, Refinement, SearchResult
from foretell.oracle.search_result import INTERRUPTED, OUT_OF_TIME
from foretell.oracle.stages import Effort, best_split, may_choose
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline

FARTHEST = 1.3
"""How much slower than the best a plan may be: a vocabulary as large as some layers makes a stage so much longer."""

WORTH = 1e-3
"""The part of a step that has to be saved: a plan should not have more words for nothing."""

PASSED = 2_000
"""Plans in the order of their steps that are looked at for such ones."""


class RefinedPlan(NamedTuple):
    """A plan with something chosen for it."""

    best: Candidate
    least: float  # seconds; no other choice takes less


class RefinementChoice(NamedTuple):
    """Something to choose."""

    what: str
    asks: Callable[[PlanningAnswer, Setting], bool]  # whether there is a choice
    choose: Callable[
        [PlanningAnswer, Setting, float, Effort], RefinedPlan | None
    ]  # one that takes less than so many seconds
    leading: int  # plans that fit for which it is chosen
    tight: int  # and that need more memory than there is
    effort: int  # plans that are priced for it; the last one is finished

    @property
    def plans(self) -> int:
        """For which it is chosen, at most."""
        return self.leading + self.tight


Choosing = Callable[[str, float], None]
"""Told before each plan what is chosen for it, and which share of the plans has had its turn."""


def refine(answer: PlanningAnswer, choosing: Choosing | None = None) -> PlanningAnswer:
    """The answer with stages and parts chosen for the plans that lead it; Ctrl-C ends this with the best so far."""
    if answer.question.place.mixed:  # shares are chosen already
        return answer
    told: list[Refinement] = []
    stopped = answer.found.stopped
    until = time.perf_counter() + answer.question.effort.seconds - answer.found.seconds
    for choice in CHOICES if not answer.found.interrupted else ():
        answer, found, ended = _chosen(answer, choice, choosing or (lambda what, share: None), until)
        told += [found] if found.tried else []
        stopped = stopped or ended
        if ended:
            break
    if not told and stopped == answer.found.stopped:
        return answer
    changes = {"finer": tuple(told), "complete": not stopped, "stopped": stopped}
    return answer._replace(found=replaced(answer.found, **changes))


def refined_answer(question: Request, watching: Watching | None = None) -> PlanningAnswer:
    """What `foretell plan` answers: the search, and what is chosen besides."""
    return refine(answered(question, watching))


def _chosen(
    answer: PlanningAnswer, choice: RefinementChoice, choosing: Choosing, until: float
) -> tuple[PlanningAnswer, Refinement, str]:
    """The answer with the fastest of the plans for which something is chosen, if it is faster than all others.

    And why not all were tried: somebody interrupted, or the time was out.
    """
    before, best, tried, effort, ended = answer.found.best, None, 0, Effort(), ""
    reached = before.step_seconds if before else float("inf")
    try:
        for setting in _leading(answer, choice, reached):
            choosing(choice.what, max(tried / choice.plans, effort.spent / choice.effort))
            tried += 1
            found = choice.choose(answer, setting, reached * (1 - WORTH), effort)
            if found is not None:
                best, reached = found, found.best.step_seconds
            if effort.spent > choice.effort:
                break
            if time.perf_counter() > until:
                ended = OUT_OF_TIME
                break
    except KeyboardInterrupt:
        ended = INTERRUPTED
    if best is None:
        return answer, Refinement(what=choice.what, tried=tried, before=before), ended
    one = best.best
    told = Refinement(
        what=choice.what,
        tried=tried,
        before=before,
        plan=one.plan,
        step_seconds=one.step_seconds,
        memory_bytes=one.memory_bytes,
        least_seconds=best.least,
    )
    return answer._replace(found=_led(answer, one, best.least)), told, ended


def _led(answer: PlanningAnswer, best: Candidate, least: float) -> SearchResult:
    """What was found, with another plan in front, which other choices could better down to `least` seconds."""
    found = answer.found
    smaller = (one for one in found.pareto if one.memory_bytes < best.memory_bytes)
    top = (best, *found.top)[: answer.question.top]
    proven = min(found.least_seconds, least)
    return replaced(found, best=best, top=top, pareto=(best, *smaller), least_seconds=proven)


# plans in front


def _leading(answer: PlanningAnswer, choice: RefinementChoice, reached: float) -> Iterator[Setting]:
    """Plans in front for which there is a choice. Of those that differ only in how weights are stored the fastest."""
    plans, seen = answer.found.plans, set[Hashable]()
    left = {True: choice.leading, False: choice.tight}
    for at in _in_front(plans, reached):
        plan, fits = plans[at].value, bool(plans.fits[at])
        setting, shape = answer.space.setting(plan), _shape(plan)
        if shape in seen or not left[fits] or not choice.asks(answer, setting):
            continue
        if fits:
            seen.add(shape)
        left[fits] -= 1
        yield setting


def _in_front(plans: PricedPlans, reached: float) -> list[int]:
    """The plans that may win with other choices, the fastest first."""
    near = numpy.flatnonzero((plans.memory <= ROOM * plans.capacity) & (plans.seconds <= FARTHEST * reached))
    first = near[numpy.lexsort((plans.memory[near], plans.seconds[near]))][:PASSED].tolist()
    return sorted(first, key=lambda at: (plans.seconds[at], plans.memory[at], plainness(plans[at])))


def _shape(plan: Plan) -> Hashable:
    """What decides how long layers take: not how weights are stored."""
    axes = tuple(axis if axis.word != "dp" else axis.world for axis in plan.axes)
    return axes, plan.microbatches, plan.policy(Recompute)


# choices


def _stages(answer: PlanningAnswer, setting: Setting, reached: float, effort: Effort) -> RefinedPlan | None:
    found = best_split(setting, answer.space.cluster, answer.found.capacity, reached, effort)
    if found is None:
        return None
    return RefinedPlan(Candidate(found.plan, found.step_seconds, found.memory_bytes), found.least_seconds)


def _parts(answer: PlanningAnswer, setting: Setting, reached: float, effort: Effort) -> RefinedPlan | None:
    """For one axis after the other."""
    best, least = None, float("inf")
    for word in [axis.word for axis in open_axes(setting.plan)]:
        axis = next(axis for axis in setting.plan.axes if axis.word == word)
        found = best_part(setting, axis, answer.space.cluster, answer.found.capacity, reached)
        least, effort.spent = min(least, found.least_seconds), effort.spent + found.priced
        if found.best is not None:
            best, reached = found.best, found.best.step_seconds * (1 - WORTH)
            setting = msgspec.structs.replace(setting, plan=best.value)
    return RefinedPlan(best, min(least, best.step_seconds)) if best else None


def _cuts(answer: PlanningAnswer, setting: Setting) -> bool:
    """Whether stages may be chosen, and the user did not."""
    fixed = answer.space.fixed.axis(Pipeline)
    return may_choose(setting) and (fixed is None or not fixed.split)


def _divides(answer: PlanningAnswer, setting: Setting) -> bool:
    return bool(open_axes(setting.plan))


def _counts(answer: PlanningAnswer, setting: Setting) -> bool:
    """Whether some layers alone may run again, and the user did not say which do."""
    return may_count(setting) and answer.space.fixed.policy(Recompute) == Recompute()


def _layers(answer: PlanningAnswer, setting: Setting, reached: float, effort: Effort) -> RefinedPlan | None:
    room = head_room(answer.question, answer.space, answer.found.capacity)
    found = best_count(setting, answer.space.cluster, room, reached)
    effort.spent += found.priced
    return RefinedPlan(found.best, min(found.least_seconds, found.best.step_seconds)) if found.best else None


CHOICES = (
    RefinementChoice("recompute", _counts, _layers, 12, 0, 100),
    RefinementChoice("stages", _cuts, _stages, 12, 6, 300),
    RefinementChoice("parts", _divides, _parts, 4, 1, 100),
)
