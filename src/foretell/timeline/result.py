"""One plan composed from its parts: its step, what the step is made of, and what the worst rank holds."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from typing import Any

from foretell.cost.price import PricedProgram
from foretell.cost.prices import Parts
from foretell.hardware.cluster import Cluster
from foretell.plan.axis_names import AxisName
from foretell.plan.schedule import SLOT_KINDS
from foretell.timeline.engine import SEGMENT
from foretell.timeline.memory_timeline import memory_use
from foretell.timeline.observation import Observation
from foretell.timeline.one_plan import OnePlan
from foretell.timeline.pairs import hidden_seconds
from foretell.timeline.plan_table import unrolled

ROUNDING = 1e-12


class ComposedStep(Observation, frozen=True):
    """One step, and how much of the bubble of its critical rank is there because stages differ."""

    imbalance: float  # seconds


def composed(plan: PricedProgram, cluster: Cluster, whole: bool = False) -> ComposedStep:
    """One step of one plan; `whole`: slot by slot to its end, instead of until its pipeline is full."""
    one = OnePlan.of(plan, cluster, unrolled(plan, whole))
    step, worst, late, exposed = one.kernels.step_seconds(one.tables, one.plans, 0)
    used, parts = memory_use(one), _Breakdown(one)
    breakdown = parts.of_rank(worst, late, exposed, step)
    return ComposedStep(step, used.device, used, breakdown, parts.imbalance(worst, breakdown.get("bubble", 0.0)))


class _Breakdown:
    """What the step of a plan is made of."""

    def __init__(self, one: OnePlan) -> None:
        self.one, self.plan, self.steps = one, one.plan, one.steps

    def of_rank(self, rank: int, late: float, exposed: float, total: float) -> dict[str, float]:
        """The seconds of a rank by what they are spent on; what is left is the bubble."""
        plan = self.plan
        found: Parts = defaultdict(float)
        beside: Parts = defaultdict(float)  # what travels for weights behind the computation
        for (stage, number), times in self._slots(rank).items():
            kind = SLOT_KINDS[number]
            _add(found, self._slot(plan.stages[stage], kind), times)
            if plan.overlap:
                _add(beside, plan.traffic[plan.stages[stage]].beside(kind), times)
        for stage in self.steps.order.held[rank]:
            care = plan.traffic[plan.stages[stage]]
            _add(beside, care.beside_step)
            _add(found, care.finish)
        self._beside_pairs(rank, found)
        _add(found, beside, exposed / (sum(beside.values()) or 1.0))  # axes share one queue: each its part of it
        found["host"] += late
        bubble = total - sum(found.values())
        found["bubble"] = bubble if bubble > ROUNDING * total else 0.0
        return {name: seconds for name, seconds in found.items() if seconds}

    def _beside_pairs(self, rank: int, found: Parts) -> None:
        """Experts' rows that ran beside the kernels of pairs of passes were not waited for."""
        waited = [
            name for name in found if name.startswith("exposed.") and AxisName.EP in name.split(".")[1].split("+")
        ]
        whole = sum(found[name] for name in waited)
        hidden = min(whole, self._hidden(rank)) if whole else 0.0
        for name in waited if hidden else ():
            found[name] *= 1 - hidden / whole

    def _hidden(self, rank: int) -> float:
        """Seconds of them in the whole step of a rank."""
        played = self.steps
        if not self.plan.prices.trainer.experts.beside:
            return 0.0
        pairs = played.order.paired(rank)
        if played.before is not None:
            before = played.before.paired(rank)
            pairs = Counter({one: times + (times - before[one]) * played.rounds for one, times in pairs.items()})
        return sum(times * hidden_seconds(self.plan, pair) for pair, times in pairs.items())

    def imbalance(self, rank: int, bubble: float) -> float:
        """The part of a rank's bubble in which it waits because others work longer in their slots than it does.

        With equal stages nobody does: what is left is the bubble of the schedule, filling and draining the pipeline.
        """
        if not bubble:
            return 0.0
        busiest = max(self._work(other) for other in range(self.steps.order.ranks))
        return min(bubble, busiest - self._work(rank))

    def _work(self, rank: int) -> float:
        """The device's seconds in all slots of a rank."""
        stages = self.plan.stages
        busy = sum(times * self._device(stages[stage], kind) for (stage, kind), times in self._slots(rank).items())
        return busy - self._hidden(rank)

    def _slots(self, rank: int) -> Counter[tuple[int, int]]:
        """How often a rank has each kind of slot of its stages, in the whole step."""
        played = self.steps
        found = played.order.counted(rank)
        if played.before is None:
            return found
        before = played.before.counted(rank)
        return Counter({slot: count + (count - before[slot]) * played.rounds for slot, count in found.items()})

    def _slot(self, shape: int, kind: str) -> Parts:
        """The device's seconds of a slot; what the trainer's constants add to them is the host's."""
        plan, number = self.plan, SLOT_KINDS.index(kind)
        care = plan.traffic[shape]
        own: Parts = defaultdict(float)
        for which, count, *_ in plan.signatures[shape].layers:
            _add(own, plan.kinds[which].parts[number], count)
        if not plan.overlap:
            _add(own, care.beside(kind))
        own["other"] += care.copied(kind)
        if kind in ("B", "W") and care.slot_update:
            own[care.slot_word] += care.slot_update - care.slot_copies
            own["backward"] += care.slot_copies  # of the forward pass too: kernels between those of layers
        device = self._device(shape, number)
        more = device - sum(own.values())
        own["host"] += more if more > ROUNDING * device else 0.0
        return own

    def _device(self, shape: int, number: int) -> float:
        """The device's seconds of a slot of this kind, all that is in it together."""
        segments, begin, end = self._segments
        place = shape * 8 + number
        return float(sum(segments[begin[place] : end[place] : SEGMENT]))

    @functools.cached_property
    def _segments(self) -> tuple[Any, Any, Any]:
        return self.one.kernels.all_segments(self.one.tables, self.one.plans, 0)


def _add(to: Parts, parts: Parts, times: float = 1.0) -> None:
    for name, seconds in parts.items():
        to[name] += seconds * times
