"""Causes that no share of the breakdown shows by itself: congestion, balance, redundant work, ranks that run out.

Each is a number with a rule in `explain`: seconds of the step that would not be there without it, or how near an axis
is to the most ranks that it can have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from foretell.cost.collectives import collective_seconds
from foretell.cost.slots import Slots
from foretell.hardware.cluster import Device
from foretell.model.graph import Graph
from foretell.plan.facts import Facts, facts
from foretell.plan.policies.precision import Format
from foretell.plan.setting import Setting
from foretell.program.action import Communicate, Compute
from foretell.program.lower import as_lowered
from foretell.program.program import Program, RankKind
from foretell.units import product

SAMPLES = ("dp", "shard", "ep", "ps", "local", "gossip", "ring")
"""Axes that divide the batch: work is only done twice along the others."""


class Exhausted(NamedTuple):
    """An axis that cannot have twice as many ranks."""

    axis: str
    ranks: int
    most: int
    of: str


class Causes(NamedTuple):
    """What lies behind a step; seconds are those of the step."""

    congestion: float = 0.0  # that exposed messages take longer than alone on idle links
    slowdown: float = 1.0  # how many times as long the worst of them takes
    imbalance: float = 0.0  # that the fullest pipeline rank works longer than the mean
    unevenness: float = 1.0  # its work over the mean
    redundant: float = 0.0  # of work that every rank of an axis does, and one would be enough for
    exhausted: tuple[Exhausted, ...] = ()


NO_CAUSES = Causes()


def causes(program: Program, setting: Setting, slots: Slots, breakdown: Mapping[str, float], kind: RankKind) -> Causes:
    """The causes behind a step whose last rank is of this kind."""
    congestion, slowdown = _congestion(program, slots, breakdown, kind)
    imbalance, unevenness = _imbalance(program, slots)
    redundant = _redundant(program, setting, slots.cluster.device, slots.prices.form, kind)
    return Causes(congestion, slowdown, imbalance, unevenness, redundant, tuple(_exhausted(program, setting)))


# the network


def _congestion(program: Program, slots: Slots, breakdown: Mapping[str, float], kind: RankKind) -> tuple[float, float]:
    """Seconds lost to links that are shared, and by how much the most delayed axis is slowed down.

    Of each axis the largest message is priced as it is in the step and as if its group had the links for itself
    (a benchmark's price, with phi of Kahira et al. 2021, section 4.2.2, at 1).
    """
    lost, worst = 0.0, 1.0
    for axis, message in _largest(program, kind, breakdown).items():
        alone = _alone(slots, message)
        slowdown = slots.prices.message(message) * message.every / alone if alone else 1.0
        lost += breakdown[axis] * max(0.0, 1 - 1 / slowdown)
        worst = max(worst, slowdown)
    return lost, worst


def _largest(program: Program, kind: RankKind, breakdown: Mapping[str, float]) -> dict[str, Communicate]:
    """The largest message along each axis that has exposed time."""
    found: dict[str, Communicate] = {}
    for message, _ in program.communications(kind):
        axis = f"exposed.{'+'.join(message.axes)}"
        larger = axis not in found or message.payload > found[axis].payload
        if axis in breakdown and message.kind != "receive" and larger:
            found[axis] = message
    return found


def _alone(slots: Slots, message: Communicate) -> float:
    servers = message.messages if message.kind in ("push", "pull") else 1
    times = 1 if servers > 1 else message.messages
    group = slots.prices.group(message)
    price = collective_seconds(
        message.kind, message.payload, group, slots.cluster, messages=times, sharing=1, servers=servers
    )
    return float(price.seconds)


# the stages


def _imbalance(program: Program, slots: Slots) -> tuple[float, float]:
    """How much longer the fullest pipeline rank computes than the mean, and its work over the mean."""
    if len(program.kinds) == 1:
        return 0.0, 1.0
    work = [_work(slots, kind) for kind in program.kinds]
    mean = math.fsum(work) / len(work)
    return max(work) - mean, max(work) / mean if mean else 1.0


def _work(slots: Slots, kind: RankKind) -> float:
    """Seconds that a rank computes in a step."""
    found = 0.0
    for (at, slot), times in Counter((slot.stage, slot.kind) for slot in kind.slots).items():
        cost = slots.costs[at]
        compute = cost.forward.compute if slot == "F" else cost.backward.compute / (2 if slot in ("I", "W") else 1)
        found += float(compute) * times
    return found


# work that is done more than once


def _redundant(program: Program, setting: Setting, device: Device, form: Format, kind: RankKind) -> float:
    """Seconds of a rank's work that other ranks of an axis do too, by the device's peaks.

    The operators of a micro-batch are divided by all axes but the pipeline's where everything is divided; what is
    divided less is done by several ranks.
    """
    if all(_word(axis.name) in (*SAMPLES, "pp") for axis in program.axes):
        return 0.0
    whole = _whole(as_lowered(setting.graph, setting.plan))
    ranks = product(axis.ranks for axis in program.axes if axis.name != "pp")
    rate, stream = device.matrix_rate(form.kernels), device.memory_bandwidth
    each: dict[int, float] = {}
    found = 0.0
    for body, times, _ in program.walk(kind):
        key = id(body.actions)
        if key not in each:
            each[key] = math.fsum(_twice(action, whole, ranks, rate, stream) for action in body.computations())
        found += each[key] * times
    return found


def _whole(graph: Graph) -> dict[tuple[str, str], float]:
    """The points of all loops of each operator, undivided; of several with one name the largest."""
    found: dict[tuple[str, str], float] = {}
    for _, node in graph.nodes():
        key = (node.path, node.kind)
        found[key] = max(found.get(key, 0.0), float(product(node.sizes().values())))
    return found


def _twice(action: Compute, whole: Mapping[tuple[str, str], float], ranks: int, rate: float, stream: float) -> float:
    local = float(product(action.loops.values()))
    points = whole.get((action.path, action.operator), 0.0)
    if not local or not points:
        return 0.0
    needed = points / local / ranks  # 1: divided by all ranks
    seconds = max(action.cost.matrix / rate, (action.cost.read + action.cost.written) / stream)
    return float(seconds) * max(0.0, 1 - needed)


# how many ranks


def _exhausted(program: Program, setting: Setting) -> Iterator[Exhausted]:
    """Axes that cannot have twice as many ranks; those that divide the batch count as one."""
    model = facts(setting.graph)
    ranks: dict[str, int] = {}
    for axis in program.axes:
        for word in {"dp" if _word(axis.name) in SAMPLES else _word(axis.name), _word(axis.name)}:
            if word not in SAMPLES or word in ("dp", "ep"):
                ranks[word] = ranks.get(word, 1) * axis.ranks
    for word, count in ranks.items():
        most, of = _most(word, setting, model)
        if most and 2 * count > most:
            yield Exhausted(word, count, most, of)


def _word(axis: str) -> str:
    """The strategy that an axis belongs to: one may have several."""
    return axis.partition(".")[0]


def _most(word: str, setting: Setting, model: Facts) -> tuple[int, str]:
    """The most ranks of a strategy, and what limits it; 0 where nothing is known to."""
    if word in ("filter", "channel", "spatial"):
        most, by = model.limit(word)
        return most, f"divided parts of {by}"
    return {
        "dp": (setting.graph.batch, "samples of a micro-batch"),
        "tp": (model.heads, "heads"),
        "cp": (model.sequence, "tokens of a sequence"),
        "ep": (model.experts, "experts"),
        "pp": (model.layers, "layers"),
    }.get(word, (0, ""))
