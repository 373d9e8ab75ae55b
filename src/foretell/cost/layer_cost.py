"""What each kind of layer of a local program costs on one rank, in each kind of slot: weights left aside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from foretell.cost.prices import Cost, Parts, Prices, parts_of
from foretell.cost.wrapped_host import wraps_of
from foretell.plan.schedule import SLOT_KINDS
from foretell.program.rank_program import BlockKind, RankProgram
from foretell.units import Quantity, at_least, somewhere

MOST_KNOWN = 1024
"""Figures that a local program remembers."""


@dataclass(frozen=True)
class LayerCost:
    """One kind of layer; four figures each, one for each kind of slot."""

    parts: tuple[Parts, ...]  # the device's seconds, by what they are spent on
    device: tuple[Quantity, ...]  # their sum
    launches: tuple[Quantity, ...]  # and in their time what the host does around modules
    waits: tuple[tuple[Quantity, ...], ...]  # seconds of messages that are waited for, by level of the cluster
    rows: tuple[Quantity, ...]  # of these, of rows of experts, where those of a pair of passes run beside it
    again: bool  # whether any of it runs a second time

    @property
    def alone(self) -> tuple[Quantity, ...]:
        """The device's seconds without messages that may run beside another pass."""
        return tuple(device - rows for device, rows in zip(self.device, self.rows, strict=True))


def layer_cost(local: RankProgram, kind: BlockKind, prices: Prices) -> LayerCost:
    """The figures of one kind of layer, found once for a local program on a cluster."""
    known: dict[Any, LayerCost] = local.priced
    key = (kind, prices.key, tuple(prices.axes[name] for name in local.talks))
    if key not in known:
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[key] = _figures(local, kind, prices)
    return known[key]


def _figures(local: RankProgram, kind: BlockKind, prices: Prices) -> LayerCost:
    if local is not local.resident:
        seconds = local.copied(kind) / prices.host_bandwidth
        return _with_copies(layer_cost(local.resident, kind, prices), seconds, prices.trainer.storage.offloads_beside)
    passes = local.work(kind)
    wraps = wraps_of(local.layout, kind, passes[1], local.rule.asks_each)
    ahead, back = (prices.body(actions, local.layout.alike.priced, wraps) for actions in passes)
    costs = [(ahead if slot == "F" else back).of(slot) for slot in SLOT_KINDS]
    parts = tuple(parts_of(cost) for cost in costs)
    return LayerCost(
        parts,
        tuple(sum(own.values()) for own in parts),
        tuple(cost.launches for cost in costs),
        tuple(_by_level(cost, prices) for cost in costs),
        tuple(cost.rows for cost in costs),
        any(somewhere(cost.recompute) for cost in costs),
    )


def _with_copies(stays: LayerCost, seconds: Quantity, beside: bool) -> LayerCost:
    """The same with copies of activations to the host in forward passes, and back in those that need them."""
    parts = tuple(
        own if slot == "W" else {**own, "other": own["other"] + (_after(own, seconds) if beside else seconds)}
        for slot, own in zip(SLOT_KINDS, stays.parts, strict=True)
    )
    return replace(stays, parts=parts, device=tuple(sum(own.values()) for own in parts))


def _after(own: Parts, seconds: Quantity) -> Quantity:
    """What is left of copies that began with a layer's kernels, when those are done."""
    return at_least(seconds - own["forward"] - own["backward"] - own["recompute"], 0.0)


def _by_level(cost: Cost, prices: Prices) -> tuple[Quantity, ...]:
    return tuple(cost.levels.get(level.name, 0.0) for level in prices.cluster.levels)
