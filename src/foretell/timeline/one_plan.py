"""One plan alone in the engine's tables, for those who ask the kernels about it."""

from __future__ import annotations

from typing import Any, NamedTuple

from foretell.cost.price import PricedProgram
from foretell.hardware.cluster import Cluster
from foretell.timeline.columns import Plans, Tables
from foretell.timeline.engine import is_compiled, kernels
from foretell.timeline.plan_table import PlanTable
from foretell.timeline.unroll import UnrolledSchedule


class OnePlan(NamedTuple):
    """A priced plan, the slots of its step, and the tables that kernels read."""

    plan: PricedProgram
    steps: UnrolledSchedule
    tables: Tables
    plans: Plans
    kernels: Any

    @classmethod
    def of(cls, plan: PricedProgram, cluster: Cluster, steps: UnrolledSchedule) -> OnePlan:
        table, fast = PlanTable(cluster), is_compiled()
        table.add(plan, steps=steps)
        return cls(plan, steps, table.tables(fast), table.plans(fast), kernels(fast))
