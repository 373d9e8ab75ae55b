"""Whether a plan fits: the rules of its cluster, trainer, batch, strategies and policies, in one list of refusals."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.hardware.cluster import Cluster
from foretell.plan.facts import Facts, facts
from foretell.plan.forward import broken_forward
from foretell.plan.job import divides
from foretell.plan.legality import Surroundings
from foretell.plan.legality import broken as broken_by_trainer
from foretell.plan.parts import members
from foretell.plan.plan import Plan, grid_of, part_of
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal
from foretell.plan.repair import fewer, mended, removed, replaced, told
from foretell.plan.setting import Setting
from foretell.plan.strategies.data import Data


def refusals(setting: Setting, cluster: Cluster | None = None) -> Iterator[Refusal]:
    """Every rule that a plan breaks for this model, job and trainer, and on this cluster if one is given.

    A plan that is named as a way out breaks none of them.
    """
    found = tuple(broken(setting, cluster))
    if found:
        yield from told(found, passing(setting, cluster))


def fits(setting: Setting, cluster: Cluster | None = None) -> bool:
    """Whether a plan breaks no rule; ways out are not looked for."""
    return next(broken(setting, cluster), None) is None


def broken(setting: Setting, cluster: Cluster | None) -> Iterator[Refusal]:
    """The same rules, each with its own mends: nothing was looked for that passes them all."""
    plan, found = setting.plan, facts(setting.graph)
    for axis in plan.axes:
        members(setting.graph, part_of(axis))  # a part that the model does not have is bad input, whatever else
    if cluster:
        yield from _ranks(plan, cluster)
    yield from broken_by_trainer(setting.trainer, plan, surroundings(found, cluster))
    yield from broken_forward(setting)
    yield from divides(setting.job, plan)
    for member in (*plan.axes, *plan.policies):
        yield from member.refusals(setting)


def surroundings(found: Facts, cluster: Cluster | None) -> Surroundings:
    """What the rules of trainers ask of the model and the cluster."""
    return Surroundings(
        node=cluster.ranks_per_node if cluster else 0,
        layers=found.layers,
        heads=found.heads,
        key_heads=found.limit("tensor")[0],
        vocabulary=found.vocabulary,
        costs=found.costs,
    )


def passing(setting: Setting, cluster: Cluster | None) -> Plan | None:
    """The nearest plan that breaks no rule."""
    return next(all_passing(setting, cluster), None)


def all_passing(setting: Setting, cluster: Cluster | None) -> Iterator[Plan]:
    """Plans that break no rule, the nearest first; then those with data ranks alone, and those of one rank last."""

    def rules(plan: Plan) -> Iterator[Refusal]:
        return broken(msgspec.structs.replace(setting, plan=plan), cluster)

    plan = setting.plan
    plainer = (Data(ranks=plan.ranks),) if plan.ranks > 1 else ()
    alone: list[Plan] = []
    for start in (plan, Plan(plainer, plan.policies), Plan(policies=(plan.policy(Precision),))):
        for found in mended(start, rules, cluster.ranks if cluster else 0):
            if found.ranks > 1 or plan.ranks == 1:
                yield found
            else:
                alone.append(found)
    yield from alone


def _ranks(plan: Plan, cluster: Cluster) -> Iterator[Refusal]:
    if plan.ranks > cluster.ranks:
        why = f"{plan} needs {plan.ranks} ranks, and {cluster.text} has {cluster.ranks}"
        mends = tuple(_smaller(plan, cluster.ranks))
        yield Refusal("enough ranks", why, f"a cluster of {plan.ranks} ranks", mends)


def _smaller(plan: Plan, most: int) -> Iterator[Plan]:
    """The plan with fewer ranks on one axis, data first, so that it has no more than so many; or without the axis."""
    for axis in sorted(plan.axes, key=lambda axis: not isinstance(axis, Data)):
        others = plan.ranks // axis.world
        narrower = () if grid_of(axis) else fewer(axis, lambda ranks, n=others: ranks * n <= most)
        yield from (mended for other in narrower for mended in replaced(plan, axis, other) if mended.ranks <= most)
    for axis in plan.axes:
        yield removed(plan, axis)[-1]
