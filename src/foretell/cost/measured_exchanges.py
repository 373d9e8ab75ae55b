"""Measured messages over their formula: what a calibration says of the collectives of a machine."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from foretell.cost.collectives import POINT_KINDS, collective_seconds
from foretell.cost.fabric import Group
from foretell.cost.samples import Calibration, CollectiveSample
from foretell.hardware.cluster import Cluster
from foretell.hardware.measured import Point

SHORTEST: Final = 10e-6
"""Seconds that a message takes at least: two rows of steps, one with it and one without, may differ by less."""

SLICE: Final = 2.8e-3
"""Seconds that a thread keeps its core while another one waits for it, where a calibration has no `late`: Linux from 8
cores on (kernel/sched/fair.c, sysctl_sched_base_slice: 0.7 ms times 1 + log2 of at most 8 cores)."""


def exchange_points(cluster: Cluster, found: Calibration, busy: int = 1) -> dict[str, list[Point]]:
    """Measured over formula for each kind of collective that was timed, with so many ranks busy at once."""
    points: dict[str, list[Point]] = defaultdict(list)
    for about, seconds in _exchanges(found, busy).items():
        if about.ranks <= cluster.ranks_per_node:
            said = collective_seconds(about.kind, about.payload, Group(about.ranks), cluster).seconds
            place = (math.log2(about.payload), math.log2(about.ranks))
            points[about.kind].append((*place, math.log(seconds / float(said))))
    if found.machine.kind != "cpu":  # links of devices are their own
        return points
    return {kind: list(_at_once(own, math.log2(busy))) for kind, own in points.items()}


def _exchanges(found: Calibration, busy: int) -> dict[CollectiveSample, float]:
    """Seconds of each message: what a row of them with computing between takes longer than the computing, where that
    was timed; or as ranks come to it from computing, which knows how late it gets a core; else as idle ranks take, and
    so much later."""
    calm: dict[CollectiveSample, float] = {}
    worked: dict[CollectiveSample, float] = {}
    in_rows: dict[CollectiveSample, float] = {}
    for one in found.samples:
        if isinstance(one.about, CollectiveSample):
            ranks = 2 if one.about.kind in POINT_KINDS else one.about.ranks
            plain = msgspec.structs.replace(one.about, worked=False, row=False)
            if one.about.row:
                in_rows[plain] = max(one.mean, SHORTEST)
            elif one.about.worked:
                worked[plain] = one.mean
            else:
                calm[plain] = one.p50 + _late(ranks, found, busy)
    return calm | worked | in_rows


def _at_once(points: list[Point], busy: float) -> Iterator[Point]:
    """Groups of some of the busy ranks talk at the same time: each is as slow as if all were one group, hop by hop."""
    crowded = {size: log for size, ranks, log in sorted(points) if ranks <= busy}  # of the most ranks that were tried
    for size, ranks, log in points:
        yield size, ranks, max(log, crowded.get(size, log)) if ranks < busy else log


def _late(ranks: int, found: Calibration, busy: int) -> float:
    """Seconds that messages take longer where ranks come from computing: threads of gloo have to get a core.

    Each of the others is somewhere in its slice, and the last one is waited for: the largest of so many numbers
    between none and a slice. What was measured is of all busy ranks in one group.
    """
    if found.machine.kind != "cpu" or busy == 1:
        return 0.0
    full = SLICE * (busy - 1) / busy if busy >= found.machine.count else 0.0
    all_of_them = found.among("late", busy, alone=0.0) if found.figures("late") else full
    return all_of_them * (1 - 1 / ranks) / (1 - 1 / busy)
