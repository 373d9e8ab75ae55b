"""One plan composed from its parts: its step, what the step is made of, and what the worst rank holds."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from typing import Any

from foretell.cost.memory import MemoryUse
from foretell.cost.price import PricedProgram
from foretell.cost.prices import Parts
from foretell.hardware.cluster import Cluster
from foretell.timeline.columns import Plans, Tables
from foretell.timeline.engine import SEGMENT, is_compiled, kernels
from foretell.timeline.observation import Observation
from foretell.timeline.plan_table import PlanTable, unrolled
from foretell.timeline.unroll import KINDS, UnrolledSchedule

ROUNDING = 1e-12

PASS = {"F": "forward", "B": "backward", "I": "backward", "W": "weight gradients"}


def composed(plan: PricedProgram, cluster: Cluster, whole: bool = False) -> Observation:
    """One step of one plan; `whole`: slot by slot to its end, instead of until its pipeline is full."""
    table, steps = PlanTable(cluster), unrolled(plan, whole)
    table.add(plan, steps=steps)
    fast = is_compiled()
    one = _One(plan, steps, table.tables(fast), table.plans(fast), kernels(fast))
    step, worst, late, exposed = one.kernels.step_seconds(one.tables, one.plans, 0)
    used = one.memory()
    return Observation(step, used.device, used, one.breakdown(worst, late, exposed, step))


class _One:
    """One plan, alone in its tables."""

    def __init__(
        self, plan: PricedProgram, steps: UnrolledSchedule, tables: Tables, plans: Plans, kernels: Any
    ) -> None:
        self.plan, self.steps, self.tables, self.plans, self.kernels = plan, steps, tables, plans, kernels

    # what a step is made of

    def breakdown(self, rank: int, late: float, exposed: float, total: float) -> dict[str, float]:
        """The seconds of a rank by what they are spent on; what is left is the bubble."""
        plan = self.plan
        found: Parts = defaultdict(float)
        beside: Parts = defaultdict(float)  # what travels for weights behind the computation
        for (stage, number), times in self._slots(rank).items():
            kind = KINDS[number]
            _add(found, self._slot(plan.stages[stage], kind), times)
            if plan.overlap:
                _add(beside, plan.traffic[plan.stages[stage]].beside(kind), times)
        for stage in self.steps.order.held[rank]:
            care = plan.traffic[plan.stages[stage]]
            _add(beside, care.beside_step)
            _add(found, care.finish)
        _add(found, beside, exposed / (sum(beside.values()) or 1.0))  # axes share one queue: each its part of it
        found["host"] += late
        bubble = total - sum(found.values())
        found["bubble"] = bubble if bubble > ROUNDING * total else 0.0
        return {name: seconds for name, seconds in found.items() if seconds}

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
        plan, number = self.plan, KINDS.index(kind)
        care = plan.traffic[shape]
        own: Parts = defaultdict(float)
        for which, count, *_ in plan.signatures[shape].layers:
            _add(own, plan.kinds[which].parts[number], count)
        if not plan.overlap:
            _add(own, care.beside(kind))
        own["other"] += care.copied(kind)
        if kind in ("B", "W") and care.slot_update:
            own[care.slot_word] += care.slot_update
        segments, begin, end = self._segments
        place = shape * 8 + number
        device = float(sum(segments[begin[place] : end[place] : SEGMENT]))
        more = device - sum(own.values())
        own["host"] += more if more > ROUNDING * device else 0.0
        return own

    @functools.cached_property
    def _segments(self) -> tuple[Any, Any, Any]:
        return self.kernels.all_segments(self.tables, self.plans, 0)

    # memory

    def memory(self) -> MemoryUse:
        """The worst rank's."""
        plan, constants = self.plan, self.plan.constants
        most = [self.kernels.rank_memory(self.tables, self.plans, 0, rank) for rank in range(plan.program.ranks)]
        device = tuple(allocated * constants.reserved + constants.context for allocated, _ in most)
        worst = max(range(len(device)), key=lambda at: device[at])
        allocated, when = most[worst]
        kinds = self._kinds(worst, when)
        reserved = allocated * constants.reserved
        kinds |= {"allocator": reserved - allocated, "context": device[worst] - reserved}
        where = f" on pipeline rank {worst}" if plan.program.ranks > 1 else ""
        return MemoryUse(allocated, reserved, device[worst], device, kinds, self._moment(when) + where)

    def _moment(self, when: int) -> str:
        if when < 0:
            return "the update of weights"
        moment = self.steps.moments.one(when)
        return f"the {PASS[moment.kind]} pass of micro-batch {moment.microbatch}"

    def _kinds(self, rank: int, when: int) -> dict[str, float]:
        """Bytes of a rank at a moment, by what they are for."""
        plan, constants = self.plan, self.plan.constants
        held = self.steps.order.held[rank]
        resting = [plan.traffic[plan.stages[stage]].resting for stage in held]
        parameters = sum(one.trained for one in resting)
        kinds = {
            "weights": sum(one.weights for one in resting),
            "gradients": sum(one.gradients for one in resting),
            "states": sum(one.states for one in resting),
            "trainer's copies": constants.copies * parameters,
        }
        if constants.workspace:
            kinds["workspace"] = constants.workspace
        if when < 0:
            kinds["update's copies"] = constants.gathered * parameters
        else:
            made = bool(constants.made) and self.kernels.one_each(self.tables, self.plans, 0)
            kinds["gradients"] *= not made
            moment = self.steps.moments.one(when)
            passes = [plan.peaks[plan.stages[stage]] for stage in held]
            flying = sum(count * own.kept for count, own in zip(moment.flying, passes, strict=True))
            now = plan.peaks[plan.stages[moment.stage]]
            back = now.making_peak if made else now.backward_peak
            peak = now.forward_peak if moment.forward else back
            kinds["activations"] = flying + (now.kept if moment.forward else 0.0)
            kinds["working"] = max(0.0, peak - now.kept)
            fresh = 0.0 if moment.forward else constants.fresh * parameters
            if fresh - now.kept > kinds["working"]:  # they are all there when the slot's own activations are gone
                kinds |= {"activations": flying - now.kept, "working": 0.0, "new gradients": fresh}
            kinds["cached gradients"] = constants.cached * parameters
            room = max(0.0, constants.limit - sum(kinds.values()))
            kinds["held by streams"] = min(constants.streams, room)
        always = ("weights", "gradients", "states", "activations", "working")
        return {name: size for name, size in kinds.items() if size or name in always}


def _add(to: Parts, parts: Parts, times: float = 1.0) -> None:
    for name, seconds in parts.items():
        to[name] += seconds * times
