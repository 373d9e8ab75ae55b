"""What is told of clusters with several kinds of devices: the ways to use them, and what is of one kind alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foretell.cli.table import folded
from foretell.errors import BadInput
from foretell.units import show_bytes, show_percent
from foretell.units import show_seconds as seconds

if TYPE_CHECKING:
    from foretell.oracle.search_result import SearchResult


def ways_page(found: SearchResult) -> str:
    """On a mixed cluster the fastest of each way to use its kinds of devices."""
    best = found.ways[0].step_seconds
    lines = ["ways to use these devices"]
    for one in found.ways:
        slower = f", {show_percent(one.step_seconds / best - 1, 0, sign=True)}" if one.step_seconds > best else ""
        tight = "" if one.roomy else ", tight"
        lines.append(f"{one.way}: {seconds(one.step_seconds)}{slower}, {show_bytes(one.memory_bytes)}{tight}")
        lines += [f"  {one.plan}", *([folded(one.what, 2, before="  ")] if one.what else [])]
    proven = "shares were chosen for the plans in front of each kind's own search; nothing is proven of others"
    return "\n".join([*lines, "", folded(proven)])


def only_of_one_kind(given: Mapping[str, object]) -> None:
    """Refuse options about the devices of all ranks, of those that are given."""
    for option, said in given.items():
        if said:
            what = f"{option} is of one kind of device, and this cluster has several"
            raise BadInput(what, where=option, fix=f"without {option}, or --on one part of the cluster")
