"""The plan that takes least energy, of the fastest of a search.

Kernels of a layer draw about the same in every plan, and devices draw while they wait: a plan that takes long seldom
takes little. So energy is worked out for the fastest plans alone, which a search has in order.
"""

from __future__ import annotations

from typing import Final

from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.oracle.energy import step_energy
from foretell.oracle.planning import PlanningAnswer, replaced
from foretell.plan.plan import Plan

LEADING: Final = 40
"""Plans whose energy is worked out."""


def joules_of(answer: PlanningAnswer, plan: Plan) -> float:
    """What the devices draw in a step of a plan of the search."""
    setting, cluster = answer.space.setting(plan), answer.space.cluster
    energy = step_energy(priced(setting, cluster), answer.predicted(plan))
    if energy is None:
        what = "no power of processors was measured"
        raise BadInput(what, where="--by energy", fix="--by time, or a cluster of GPUs")
    return energy.joules


def by_energy(answer: PlanningAnswer) -> PlanningAnswer:
    """The answer with the plans first that draw least, of the fastest that fit."""
    found = answer.found
    leading = [one for one in found.plans.fastest(LEADING) if one.memory_bytes <= found.capacity]
    if not leading:
        return answer
    drawn = {one.plan: joules_of(answer, one.value) for one in leading}
    first = sorted(leading, key=lambda one: (drawn[one.plan], one.step_seconds))
    changed = replaced(found, best=first[0], top=tuple(first[: len(found.top)]))
    return answer._replace(found=changed, joules=drawn[first[0].plan])
