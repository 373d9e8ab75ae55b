"""Seconds of rows on their way to experts or home, by the plan's way of dispatch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from foretell.cost.fabric import Group, route
from foretell.hardware.cluster import Cluster
from foretell.plan.dispatch import Among, RoutedRows, dispatch
from foretell.plan.reach import owners
from foretell.units import Quantity, at_least

Collective: TypeAlias = Callable[[str, Quantity, Group], Quantity]
"""Seconds of a kind of collective with so many bytes among a group."""


def dispatched_seconds(
    rows: RoutedRows, payload: Quantity, group: Group, cluster: Cluster, collective: Collective
) -> Quantity:
    """Of the bytes of a rank's rows, one for each expert of its tokens."""
    way, inside = dispatch(rows.dispatch), route(group, cluster).inside
    where = owners(rows.reach, group.ranks, inside)
    sent = way.home(where, group.ranks) if rows.home else way.to_experts(where, group.ranks)
    found: Quantity = 0.0
    for one in sent:
        seconds = collective(one.kind, payload * one.share, among(group, inside, one.among))
        found = at_least(seconds, found) if way.together else found + seconds
    return found


def among(group: Group, inside: int, part: Among) -> Group:
    """The ranks of a group that a part of a dispatch is among."""
    if part == "nodes":
        return Group(-(-group.ranks // inside), group.stride * inside)
    return Group(inside, group.stride) if part == "node" else group
