"""Common plans for a cluster, those first that are usually fastest where they fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from foretell.hardware.cluster import Cluster
from foretell.plan.facts import Facts
from foretell.plan.plan import Plan
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, allows

MOST_TENSOR: Final = 8
"""Tensor ranks of the ladder's plans at most: the largest that published runs use inside a node
(Narayanan et al. 2021, arXiv 2104.04473, takeaway 1)."""

PIPELINES: Final = (2, 4, 8, 16)
"""Pipeline ranks that the ladder tries."""


def ladder(cluster: Cluster, model: Facts, trainer: Trainer) -> Iterator[Plan]:
    """Common plans that take all ranks of a cluster, those first that are usually fastest where they fit.

    Storage in shares costs more traffic with each stage, recomputation up to a forward pass, a tensor axis
    messages inside every layer, a pipeline its bubble. Plans that mean the same are there once.
    """
    precision = usual_precision(cluster, trainer)
    seen: set[Plan] = set()
    for text in _rungs(cluster, model, trainer):
        plan = parse(f"{text} +{precision}")
        if plan.ranks == cluster.ranks and plan not in seen:
            seen.add(plan)
            yield plan


def usual_precision(cluster: Cluster, trainer: Trainer) -> str:
    """bf16, or fp16 on a device without it, if the trainer runs that; else the trainer's own."""
    kinds = ("bf16", "fp16")
    can = (word for word in kinds if cluster.device.supports(word) and allows(trainer.legal.precisions, word))
    return next(can, trainer.defaults.precision)


def _rungs(cluster: Cluster, model: Facts, trainer: Trainer) -> Iterator[str]:
    ranks, node, nodes = cluster.ranks, cluster.ranks_per_node, cluster.nodes
    again = ("+recompute:attention", "+recompute:block") if model.heads else ("+recompute:block",)
    if ranks == 1:
        yield from ("dp1", *(f"dp1 {policy}" for policy in again))
        return
    yield from (f"dp{ranks}{storage}" for storage in ("", ":zero1", ":zero2", ":zero3"))
    yield from (f"dp{ranks}:zero3 {policy}" for policy in again)
    if nodes > 1 and node > 1:
        yield from (f"dp{nodes}:zero3,shard{node} {policy}" for policy in ("", again[-1]))
    experts = _most(min(node, ranks), node, model.experts)
    if experts > 1 and trainer.legal.experts:
        yield from (f"dp{ranks}:zero1,ep{experts} {policy}" for policy in ("", again[-1]))
    if model.heads:
        yield from _with_layers_in_parts(cluster, model, trainer)


def _most(limit: int, *sizes: int) -> int:
    """The most ranks up to a limit that divide all of these; 1 where one of them is nothing."""
    return max(n for n in range(1, limit + 1) if all(size % n == 0 for size in sizes)) if all(sizes) else 1


def _with_layers_in_parts(cluster: Cluster, model: Facts, trainer: Trainer) -> Iterator[str]:
    """A tensor axis inside the node, then a pipeline over nodes beside it."""
    ranks = cluster.ranks
    tensor = _most(MOST_TENSOR, cluster.ranks_per_node, model.heads)
    beside, staged = _storage(trainer.legal.storages), _storage(trainer.legal.storages_pipeline)
    inside = f"tp{tensor}{_sequence(model, tensor, trainer)}" if tensor > 1 else ""
    if tensor > 1:
        for storage, policy in ((beside, ""), (beside, "+recompute:block"), ("zero3", "+recompute:block")):
            yield f"{_data(ranks // tensor, storage)} {inside} {policy}"
    for stages in PIPELINES:
        data = ranks // tensor // stages
        if stages * tensor * data == ranks and stages <= model.layers:
            for policy in ("", "+recompute:block"):
                yield f"pp{stages}:1f1b {_data(data, staged)} {inside} {policy}"


def _data(ranks: int, storage: str) -> str:
    return f"dp{ranks}{f':{storage}' if storage else ''}" if ranks > 1 else ""


def _storage(legal: tuple[str, ...]) -> str:
    """zero1, or what the trainer has that is nearest to it; nothing if it shares nothing out."""
    return next((word for word in ("zero1", "zero2", "zero3") if allows(legal, word)), "")


def _sequence(model: Facts, ranks: int, trainer: Trainer) -> str:
    legal = trainer.legal.sequence_parallel
    return ":sp" if legal != "never" and model.sequence % ranks == 0 else ""
