"""Whether a plan fits: the rules of its strategies, its batch and its trainer, in one list of refusals."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.hardware.cluster import Cluster
from foretell.plan.facts import facts
from foretell.plan.job import divides
from foretell.plan.legality import Surroundings, legal
from foretell.plan.plan import Plan
from foretell.plan.policies.lora import Lora
from foretell.plan.refusal import Refusal
from foretell.plan.setting import Setting


def refusals(setting: Setting, cluster: Cluster | None = None) -> Iterator[Refusal]:
    """Every rule that a plan breaks for this model, job and trainer, and on this cluster if one is given."""
    found = facts(setting.graph)
    node = cluster.ranks_per_node if cluster else 0
    if cluster:
        yield from _ranks(setting.plan, cluster)
    around = Surroundings(
        node=node, layers=found.layers, heads=found.heads, vocabulary=found.vocabulary, costs=found.costs
    )
    yield from legal(setting.trainer, setting.plan, around)
    yield from divides(setting.job, setting.plan)
    for strategy in setting.plan.axes:
        if strategy.world > 1:
            yield from strategy.refusals(setting)
    if rank := setting.plan.policy(Lora).rank:
        why = f"+lora{rank}: the grammar knows adapters, but no program is written for them yet"
        yield Refusal("adapters", why, "the plan without +lora")


def _ranks(plan: Plan, cluster: Cluster) -> Iterator[Refusal]:
    if plan.ranks > cluster.ranks:
        why = f"{plan} needs {plan.ranks} ranks, and {cluster.text} has {cluster.ranks}"
        yield Refusal("enough ranks", why, f"a plan of at most {cluster.ranks} ranks, or a cluster of {plan.ranks}")
