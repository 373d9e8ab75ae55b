"""What would fit where a plan does not: each change was predicted, and only those that fit are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from foretell.oracle import proposals
from foretell.oracle.batch_prober import BatchProber, ProbedPlan
from foretell.oracle.proposals import PASSES, Proposal
from foretell.plan.facts import facts
from foretell.plan.offered import says_less
from foretell.plan.plan import Plan


class PlanChange(msgspec.Struct, frozen=True):
    """Something else that fits: proved by predicting it."""

    what: str
    plan: str
    cluster: str
    seq: int  # 0: as it was
    micro_batch: int
    memory_bytes: float
    capacity: float  # bytes of a device
    usable: float  # that a run can fill of them
    samples_per_second: float


def changes(asked: BatchProber, worst: ProbedPlan) -> Iterator[PlanChange]:
    """What would fit, the smallest change first: of the plan, then of the sequence, then of the hardware."""
    found: list[PlanChange] = []
    plan, free = worst.asked, not asked.fixed  # a graph for a batch of its own can be cut in no other way
    passes = proposals.smaller_passes(plan, worst.plan.microbatches, worst.micro) if free else ()
    axes = proposals.axes(plan) if free else ()
    for kind in (passes, proposals.policies(plan), proposals.storages(plan), axes):
        found += _proved(asked, worst, kind)
    yield from sorted(found, key=lambda change: -change.samples_per_second)
    if free:
        yield from _proved(asked, worst, proposals.shorter(plan, facts(worst.setting.graph).sequence))
    kernels = proposals.kernels_of(worst.plan)
    yield from _proved(asked, worst, proposals.larger_devices(plan, asked.cluster, kernels))
    if free:
        yield from _proved(asked, worst, proposals.more_ranks(plan, asked.cluster))


def adapters(asked: BatchProber, worst: ProbedPlan) -> Iterator[PlanChange]:
    """Adapters, which train something else: named last, and never instead of two changes that do not."""
    if not asked.fixed:
        length = facts(worst.setting.graph).sequence
        yield from _proved(asked, worst, proposals.adapters(worst.asked, length, asked.cluster.nodes))


def two_changes(asked: BatchProber, worst: ProbedPlan) -> Iterator[PlanChange]:
    """Two changes of the plan together: the one that saves most of its kind, with each other one."""
    seen: set[frozenset[str]] = set()
    for kind in (proposals.policies(worst.asked), proposals.storages(worst.asked)):
        last = {one.group: one for one in kind}  # kinds go from the smallest saving to the largest
        for first in last.values():
            plan = first.plan()
            half = asked.ask(plan, asked.sizes(plan)[0]) if plan is not None else None
            if isinstance(half, ProbedPlan):
                for change in sorted(_seconds(asked, worst, half.asked), key=lambda one: -one.samples_per_second):
                    words = frozenset(change.plan.split())
                    if words in seen:
                        continue
                    seen.add(words)
                    yield msgspec.structs.replace(change, what=f"{first.what}, {change.what}")


def _seconds(asked: BatchProber, worst: ProbedPlan, half: Plan) -> Iterator[PlanChange]:
    """What fits with one more change of a plan that has one already."""
    for kind in (proposals.policies(half), proposals.storages(half), () if asked.fixed else proposals.axes(half)):
        yield from _proved(asked, worst, kind)


def _proved(asked: BatchProber, worst: ProbedPlan, proposed: Iterable[Proposal]) -> Iterator[PlanChange]:
    """Those that fit when they are predicted, each with all that it changes in the plan that does not."""
    done: set[str] = set()
    for one in proposed:
        if one.group in done:
            continue
        found = _fastest(asked, one, worst.asked)
        if found is not None:
            done.add(one.group)
            answer = found.prediction
            yield PlanChange(
                _named(one, found, worst),
                str(found.plan),
                answer.cluster,
                one.seq,
                found.micro,
                answer.memory_bytes,
                answer.capacity,
                answer.usable,
                answer.samples_per_second,
            )


def _fastest(asked: BatchProber, one: Proposal, asked_for: Plan) -> ProbedPlan | None:
    """A proposal that fits, and that the trainer's configuration can say where it can say the plan that does not.

    Where the batch is given, in as many micro-batches as make it fastest.
    """
    plan = one.plan()
    if plan is None or says_less(asked.trainer.offered, plan, asked_for):
        return None
    sizes = asked.sizes(plan)
    smallest = asked.ask(plan, sizes[0], one.cluster, one.seq)
    if not isinstance(smallest, ProbedPlan) or not smallest.prediction.fits:
        return None
    others = sizes[1:] if asked.request.batch else ()
    found = [smallest, *(asked.ask(plan, micro, one.cluster, one.seq) for micro in others)]
    fitting = [other for other in found if isinstance(other, ProbedPlan) and other.prediction.fits]
    return max(fitting, key=lambda other: (other.prediction.samples_per_second, other.micro))


def _named(one: Proposal, found: ProbedPlan, worst: ProbedPlan) -> str:
    """What is changed; another number of micro-batches is a change too."""
    if one.group == PASSES or found.plan.microbatches == worst.plan.microbatches:
        return one.what
    return f"{one.what}, +m{found.plan.microbatches}"
