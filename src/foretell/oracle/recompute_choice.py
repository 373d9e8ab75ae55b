"""How many layers of each stage run again: as few as leave the head-room that a plan is recommended with.

The search tries all layers of a stage or none. Where the trainer can say a number of them (Megatron's
`--recompute-method block`), each layer that is spared saves a forward pass of its own and holds what it makes. Both
grow with the layers that are spared, so halving finds the most of them that fit.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from foretell.cost.price import priced
from foretell.hardware.cluster import Cluster
from foretell.oracle.priced_plans import Candidate
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.timeline.result import composed

WORD = "first"
ALL = Recompute(granularity="block")


class BestCount(NamedTuple):
    """The plan with the fewest layers that run again, and what could be better at most."""

    best: Candidate | None  # None: none fits and takes less than what was asked for
    least_seconds: float  # with no layer that runs again
    priced: int


def may_count(setting: Setting) -> bool:
    """Whether all layers of a plan run again, and its trainer can say that only some do."""
    return WORD in setting.trainer.offered.recompute and setting.plan.policy(Recompute) == ALL


def best_count(setting: Setting, cluster: Cluster, room: float, below: float) -> BestCount:
    """The fewest layers of each stage whose running again leaves a plan within so many bytes."""
    plain = priced(_with(setting, Recompute()), cluster)
    done, low, high = 1, 0, max(plain.program.partition.layers)
    best: Candidate | None = None
    while high - low > 1:
        middle = (low + high) // 2
        one = _with(setting, Recompute(first=middle))
        made = composed(priced(one, cluster), cluster)
        done += 1
        if made.memory_bytes > room:
            low = middle
            continue
        high, best = middle, Candidate.of(one.plan, made.step_seconds, made.memory_bytes)
    better = best is not None and best.step_seconds < below
    return BestCount(best if better else None, composed(plain, cluster).step_seconds, done)


def _with(setting: Setting, recompute: Recompute) -> Setting:
    policies = (policy for policy in setting.plan.policies if not isinstance(policy, Recompute))
    plan = Plan(setting.plan.axes, (*policies, *([recompute] if recompute != Recompute() else [])))
    return msgspec.structs.replace(setting, plan=plan)
