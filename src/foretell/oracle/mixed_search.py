"""The best plan on a cluster of several kinds of devices: the kinds' own searches, and shares for the plans in front.

A plan takes each kind as long as if all devices were of it, which the search of that kind says. Shares of the batch or
of layers bring these times together: work divides as speeds do, so the step is near the harmonic mean of them, weighted
by ranks. The plans that are ahead by that, of those that share samples and of those that share layers, are predicted
with the best shares; beside them the best even plan (all wait for the slowest), and the best on each kind alone.
Nothing is proven of plans behind these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, DeviceGroup, Level
from foretell.oracle.memory_band import spread
from foretell.oracle.mixed import DeviceKinds, alone
from foretell.oracle.planning import PlanningAnswer, Watching, answered, head_room, precision_of, replaced
from foretell.oracle.predicted import predicted
from foretell.oracle.request import Request
from foretell.oracle.search_result import MixedWay
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import FORMATS
from foretell.plan.schedule import find
from foretell.plan.strategies.pipeline import Pipeline

LEADING: Final = 300
"""Plans of each kind's search, and of each way to share, whose times are compared."""

PRICED: Final = 12
"""Of these, plans that are predicted with their best shares."""

MARGIN: Final = 1.0
"""Plans of a kind's search are priced up to twice as slow as its fastest: what is best on both need not be on one."""

BATCHES, STAGES, EVEN = "uneven batches", "stages by kind", "equal shares"


def answered_mixed(question: Request, watching: Watching | None = None) -> PlanningAnswer:
    """The plans in front on all devices, the best first."""
    kinds = DeviceKinds.in_cluster(question.place)
    question = question.changed(precision=_precision(question, kinds))
    whole = question.changed(effort=msgspec.structs.replace(question.effort, margin=MARGIN))
    each = [answered(alone(whole, device), watching) for device in kinds.devices]
    ways = [way for staged in (False, True) for way in _ways(question, _Leading(each, kinds, staged))]
    if not any(one.found.interrupted for one in each):
        ways += _parts(question)
    return _answer(question, each, ways)


def _answer(question: Request, each: list[PlanningAnswer], ways: list[MixedWay]) -> PlanningAnswer:
    lead = max(each, key=lambda one: one.found.fitting)
    fitting = sorted((one for one in ways if one.fits), key=lambda one: (not one.roomy, one.step_seconds))
    top = tuple(one.candidate for one in fitting if not one.alone)
    smallest = min((one.candidate for one in ways), key=lambda one: one.memory_bytes, default=lead.found.nearest)
    found = replaced(
        lead.found,
        cluster=question.place.text,
        model=question.model,
        best=top[0] if top else None,
        top=top[: question.top],
        pareto=top[:1],
        nearest=smallest,
        least_seconds=0.0,
        ways=tuple(sorted(_first_of_each(fitting), key=lambda one: one.step_seconds)),
        seconds=sum(one.found.seconds for one in each),
        evaluated=sum(one.found.evaluated for one in each),
        candidates=sum(one.found.candidates for one in each),
        excluded=sum(one.found.excluded for one in each),
        complete=all(one.found.complete for one in each),
    )
    return PlanningAnswer(question, lead.space, found)


def _precision(question: Request, kinds: DeviceKinds) -> str:
    """What all kinds have units for, of what is usual on each."""
    usual = list(dict.fromkeys(precision_of(alone(question, device)) for device in kinds.devices))
    common = [name for name in usual if all(one.supports(FORMATS[name].kernels) for one in kinds.devices)]
    if not common:
        what = f"no precision of {' and '.join(usual)} is one of all devices"
        raise BadInput(what, where="--precision", fix="--precision fp32")
    return common[0]


class _Leading:
    """The plans in front that share layers (`staged`), or samples, as each kind's search has them."""

    def __init__(self, each: list[PlanningAnswer], kinds: DeviceKinds, staged: bool) -> None:
        self.kinds, self.staged = kinds, staged
        found = [one.found.plans.fastest_of(lambda plan: _divides(plan, staged), LEADING) for one in each]
        self.steps = [{one.plan: one for one in own} for own in found]
        self.rooms = [head_room(one.question, one.space, one.found.capacity) for one in each]
        self.common = sorted(plan for plan in self.steps[0] if all(plan in own for own in self.steps))

    def by_mean(self) -> list[tuple[float, Plan]]:
        """Those that all kinds have, by the harmonic mean of their steps."""
        weights = [self.kinds.of.count(kind) / len(self.kinds.of) for kind in range(len(self.steps))]
        means = {
            plan: 1 / sum(weight / own[plan].step_seconds for weight, own in zip(weights, self.steps, strict=True))
            for plan in self.common
        }
        return [(means[plan], self.steps[0][plan].value) for plan in sorted(means, key=lambda one: (means[one], one))]

    def slowest(self, plan: str) -> int:
        """The kind that takes longest."""
        return max(range(len(self.steps)), key=lambda kind: self.steps[kind][plan].step_seconds)


def _ways(question: Request, leading: _Leading) -> Iterator[MixedWay]:
    """The plans in front, predicted until none that is left is likely to be faster; and the best with equal shares."""
    best, word = math.inf, STAGES if leading.staged else BATCHES
    for mean, plan in leading.by_mean()[:PRICED]:
        if mean > best:
            break
        way = _way(question, plan, word)
        if way is not None:
            yield way
            best = min(best, way.step_seconds if way.fits else math.inf)
    if leading.common and not leading.staged:
        yield _even(question, leading)


def _staged(plan: Plan) -> bool:
    axis = plan.axis(Pipeline)
    return axis is not None and axis.ranks > 1


def _divides(plan: Plan, staged: bool) -> bool:
    """Whether a plan shares layers (`staged`), or samples; what has the same layers at both ends does neither."""
    axis = plan.axis(Pipeline)
    return _staged(plan) == staged and (axis is None or find(axis.schedule).copies == 1)


def _way(question: Request, plan: Plan, word: str) -> MixedWay | None:
    """A plan with its best shares; None where a rule is against it."""
    try:
        _, step = predicted(question.changed(plan=plan))
    except BadInput:
        return None
    even = step.plan == str(plan)
    return MixedWay(
        way=EVEN if even else word,
        cluster=question.place.text,
        plan=step.plan,
        step_seconds=step.step_seconds,
        memory_bytes=step.memory_bytes,
        fits=step.fits,
        roomy=step.memory_bytes <= question.effort.room(step.usable, step.most, spread(step.memory_band)),
        what=step.notes[0],
    )


def _even(question: Request, leading: _Leading) -> MixedWay:
    """The plan that is fastest where all ranks have as many samples and wait for the kind that takes longest."""
    plan = min(leading.common, key=lambda one: (leading.steps[leading.slowest(one)][one].step_seconds, one))
    kind, memory = leading.slowest(plan), max(own[plan].memory_bytes for own in leading.steps)
    return MixedWay(
        way=EVEN,
        cluster=question.place.text,
        plan=plan,
        step_seconds=leading.steps[kind][plan].step_seconds,
        memory_bytes=memory,
        fits=True,
        roomy=memory <= min(leading.rooms),
        what=f"all wait for {leading.kinds.devices[kind].told}",
    )


def _parts(question: Request) -> Iterator[MixedWay]:
    """The best on the devices of each kind alone, where these are whole units of a level."""
    for part in parts(question.place):
        try:
            answer = answered(question.changed(cluster=part))
        except BadInput:
            continue
        best = answer.found.best
        if best is not None:
            yield MixedWay(
                way=f"{part.ranks} x {part.device.told} alone",
                cluster=part.text,
                plan=best.plan,
                step_seconds=best.step_seconds,
                memory_bytes=best.memory_bytes,
                fits=True,
                roomy=best.memory_bytes <= head_room(answer.question, answer.space, answer.found.capacity),
                what="",
                alone=True,
            )


def parts(cluster: Cluster) -> Iterator[Cluster]:
    """For each group of devices the cluster that it is, where it is whole units of the levels."""
    for group in cluster.groups:
        left, levels = group.ranks, list[Level]()
        for level in cluster.levels:
            size = math.gcd(left, level.size) if left % level.size else level.size
            levels.append(msgspec.structs.replace(level, size=size))
            left //= size
            if left == 1:
                break
        if left == 1:
            text = f"{group.ranks}x{group.device.told}"
            yield msgspec.structs.replace(
                cluster, groups=(DeviceGroup(group.device, group.ranks),), levels=tuple(levels), text=text
            )


def _first_of_each(fitting: Iterable[MixedWay]) -> Iterator[MixedWay]:
    """The fastest of each way."""
    known: set[str] = set()
    for one in fitting:
        if one.way not in known:
            known.add(one.way)
            yield one
