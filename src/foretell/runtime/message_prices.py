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


def _group(ranks: tuple[int, ...], cluster: Cluster) -> Group:
    """Ranks as links see them: so many, as far apart as the two that are nearest."""
    ordered = sorted(ranks)
    stride = min(after - before for before, after in itertools.pairwise(ordered))
    return Group(min(len(ranks), cluster.ranks // stride), stride)


def of_rank(setting: Setting, cluster: Cluster, rank: int, calibration: str = "") -> Messages:
    """Of a rank of a plan on a cluster."""
    known = with_calibration(setting, cluster, calibration)
    plan = priced(known.setting, known.cluster)
    program = expand(plan.program)
    place = stage_of(setting, rank)
    said, others = _said(plan, program, place), on_links(known.cluster).seconds

    def seconds(kind: str, ranks: tuple[int, ...], payload: int) -> float:
        among = 2 if kind in ("send", "receive") else len(ranks)
        return said[kind, among, payload] if (kind, among, payload) in said else others(kind, ranks, payload)

    return Messages(seconds, _arrivals(plan, program, place, rank) if len(program.kinds) > 1 else {})


def _said(plan: PricedProgram, program: ExpandedProgram, place: int) -> dict[tuple[str, int, int], float]:
    """Seconds of what the program has, by kind, ranks and bytes."""
    found: dict[tuple[str, int, int], float] = {}
    for message, _ in program.communications(program.kinds[place]):
        kind = "send" if message.kind in ("shift", "exchange") else message.kind
        among = 2 if kind in ("send", "receive") else message.ranks
        each = float(plan.prices.message(message)) * message.every / message.messages
        found[kind, among, round(message.payload)] = each
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
