"""How long messages of a rank take that are not sent: as the program's are priced, and others by their ranks and bytes.

A rank of a pipeline waits for others, too: what they send comes when they are predicted to have sent it.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from foretell.cost.collectives import collective_seconds
from foretell.cost.collectives._traffic import KINDS
from foretell.cost.fabric import Group, sharing
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.cluster import Cluster
from foretell.oracle.calibrations import with_calibration
from foretell.oracle.disturbed import stage_of
from foretell.plan.setting import Setting
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram
from foretell.timeline.simulate import simulate

Way = tuple[str, int, int]
"""A pass that sends: forward or back, its stage and its micro-batch."""


class Messages(NamedTuple):
    """Seconds of what a rank takes part in, by kind, ranks and bytes; and when others have sent what it receives, in
    seconds from the beginning of a step, by the rank that sends."""

    seconds: Callable[[str, tuple[int, ...], int], float]
    arrivals: dict[int, list[float]]


def on_links(cluster: Cluster) -> Messages:
    """Of a program that nobody knows: by ranks and bytes alone."""

    @functools.cache
    def seconds(kind: str, ranks: tuple[int, ...], payload: int) -> float:
        kind = {"receive": "send"}.get(kind, kind)
        if kind not in KINDS or len(ranks) < 2:
            return 0.0
        group = _group(ranks, cluster)
        return float(collective_seconds(kind, payload, group, cluster, sharing=sharing(group, cluster)).seconds)

    return Messages(seconds, {})


def _stride(ranks: tuple[int, ...]) -> int:
    """How far apart the two are that are nearest."""
    return min(after - before for before, after in itertools.pairwise(sorted(ranks)))


def _group(ranks: tuple[int, ...], cluster: Cluster) -> Group:
    """Ranks as links see them: so many, as far apart as the two that are nearest; further where those would not reach
    the level that holds the first and the last, as ranks 0 to 3 and 8 to 11 on nodes of eight."""
    levels, most = cluster.levels, cluster.ranks // len(ranks)
    held = (min(ranks) // cluster.unit(level) == max(ranks) // cluster.unit(level) for level in levels)
    needed, nearest = next((at for at, all_of in enumerate(held) if all_of), len(levels) - 1), min(_stride(ranks), most)
    apart = (at for at in range(nearest, most + 1) if levels.index(cluster.level_of(len(ranks), at)) >= needed)
    return Group(len(ranks), next(apart, nearest))


def of_rank(setting: Setting, cluster: Cluster, rank: int, calibration: str = "") -> Messages:
    """Of a rank of a plan on a cluster."""
    known = with_calibration(setting, cluster, calibration)
    plan = priced(known.setting, known.cluster)
    program = expand(plan.program)
    place = stage_of(setting, rank)
    said, others = _said(plan, program, place), on_links(known.cluster).seconds

    def seconds(kind: str, ranks: tuple[int, ...], payload: int) -> float:
        among = 2 if kind in ("send", "receive") else len(ranks)
        alike = said.get((kind, among, payload), {})
        if len(alike) == 1:  # wherever it is: weights that the first and the last stage share are summed far apart
            return next(iter(alike.values()))
        stride = _stride(ranks) if alike else 0
        return alike[stride] if stride in alike else others(kind, ranks, payload)

    return Messages(seconds, _arrivals(plan, program, place, rank) if len(program.kinds) > 1 else {})


def _said(plan: PricedProgram, program: ExpandedProgram, place: int) -> dict[tuple[str, int, int], dict[int, float]]:
    """Seconds of what the program has, by kind, ranks and bytes; and by how far apart ranks are, since an axis inside
    nodes and one between them may have as many ranks and bytes."""
    found: dict[tuple[str, int, int], dict[int, float]] = defaultdict(dict)
    axes = plan.prices.axes
    for message, _ in program.communications(program.kinds[place]):
        kind = "send" if message.kind in ("shift", "exchange") else message.kind
        among = 2 if kind in ("send", "receive") else message.ranks
        each = float(plan.prices.message(message)) * message.every / message.messages
        stride = min((axes[name].stride for name in message.axes if axes[name].ranks > 1), default=0)
        found[kind, among, round(message.payload)][stride] = each
    return found


def _arrivals(plan: PricedProgram, program: ExpandedProgram, place: int, rank: int) -> dict[int, list[float]]:
    sent: dict[Way, float] = {}
    for event in simulate(plan, program, joined=True).events:
        if event.category == "transfer" and event.slot is not None:
            way = ("F" if event.slot.kind == "F" else "B", event.slot.stage, event.slot.microbatch)
            sent[way] = max(sent.get(way, 0.0), event.start + event.seconds)
    owner = {stage: kind.place for kind in program.kinds for stage in kind.stages}
    stride = next(axis.stride for axis in program.axes if axis.name == "pp")
    found: dict[int, list[float]] = defaultdict(list)
    for slot in program.kinds[place].slots:
        stage = program.stages[slot.stage]
        source = stage.before if slot.kind == "F" else stage.after
        moment = sent.get(("F" if slot.kind == "F" else "B", source, slot.microbatch))
        if slot.kind != "W" and moment is not None and owner[source] != place:
            found[rank + (owner[source] - place) * stride].append(moment)
    return dict(found)
