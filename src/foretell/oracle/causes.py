"""Causes that no share of the breakdown shows by itself: congestion, balance, redundant work, ranks that run out.

Each is a number with a rule in `explain`: seconds of the step that would not be there without it, or how near an axis
is to the most ranks that it can have.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from foretell.caches import forgettable
from foretell.cost.collectives import collective_seconds
from foretell.cost.fabric import Group
from foretell.cost.prices import Prices
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.plan.axis_names import AxisName
from foretell.plan.facts import Facts, facts
from foretell.plan.setting import Setting
from foretell.program.action import Communicate, Compute, TrafficKind
from foretell.program.program import Program
from foretell.program.rank_program import BlockKind, RankProgram, kind_of
from foretell.units import product

Seconds: TypeAlias = Callable[[BlockKind], float]
"""What one micro-batch computes in a kind of layer, forward and backward."""

TYPICAL = float(2**26)
"""Bytes of a message for weights: about what a bucket of gradients has."""

SAMPLES = ("dp", "shard", "ep", "ps", "local", "gossip", "ring")
"""Axes that divide the batch: work is only done twice along the others."""


class Exhausted(NamedTuple):
    """An axis that cannot have twice as many ranks."""

    axis: str
    ranks: int
    most: int
    of: str
    microbatches: int = 1


class Causes(NamedTuple):
    """What lies behind a step; seconds are those of the step."""

    congestion: float = 0.0  # that exposed messages take longer than alone on idle links
    slowdown: float = 1.0  # how many times as long the worst of them takes
    imbalance: float = 0.0  # that the fullest pipeline rank works longer than the mean
    unevenness: float = 1.0  # its work over the mean
    redundant: float = 0.0  # of work that every rank of an axis does, and one would be enough for
    exhausted: tuple[Exhausted, ...] = ()
    uneven: float = 0.0  # share of the critical rank's bubble that is stage imbalance


NO_CAUSES = Causes()


def causes(program: Program, prices: Prices, breakdown: Mapping[str, float], seconds: Seconds) -> Causes:
    """The causes behind a step of a plan."""
    congestion, slowdown = _congestion(program, prices, breakdown)
    work = rank_work(program, seconds)
    imbalance, unevenness = _imbalance(work)
    redundant = _redundant(program, prices, max(range(len(work)), key=lambda at: work[at]))
    return Causes(congestion, slowdown, imbalance, unevenness, redundant, tuple(_exhausted(program)))


# the network


def _congestion(program: Program, prices: Prices, breakdown: Mapping[str, float]) -> tuple[float, float]:
    """Seconds lost to links that are shared, and by how much the most delayed axis is slowed down.

    Of each axis a message is priced as it is in the step and as if its group had the links for itself (a benchmark's
    price, with phi of Kahira et al. 2021, section 4.2.2, at 1).
    """
    lost, worst = 0.0, 1.0
    largest = _largest(program)
    for key in breakdown:
        name, _, axes = key.partition(".")
        if name == "exposed":
            message = largest.get(axes) or _typical(program, tuple(axes.split("+")))
            alone = _alone(prices, message)
            slowdown = prices.message(message) * message.every / alone if alone else 1.0
            lost += breakdown[key] * max(0.0, 1 - 1 / slowdown)
            worst = max(worst, slowdown)
    return lost, worst


def _largest(program: Program) -> dict[str, Communicate]:
    """The largest message of layers along each axis, and of what crosses to other stages."""
    found: dict[str, Communicate] = {}
    for kind in {kind_of(run) for runs in program.partition.row.runs for run in runs}:
        for one in _messages(program.rank_program, kind):
            axis = "+".join(one.axes)
            if axis not in found or one.payload > found[axis].payload:
                found[axis] = one
    crossing = max((cut.bytes for cuts in program.cuts for cut in cuts), default=0) if program.ranks > 1 else 0
    return (
        {**found, "pp": Communicate("send", (AxisName.PP,), 2, crossing, TrafficKind.ACTIVATIONS, "")}
        if crossing
        else found
    )


def _messages(local: RankProgram, kind: BlockKind) -> tuple[Communicate, ...]:
    """What travels in a kind of layer; found once."""
    key = ("messages", kind)
    if key not in local.priced:
        actions = itertools.chain(*local.actions(kind))
        local.priced[key] = tuple(one for one in actions if isinstance(one, Communicate))
    return local.priced[key]


def _typical(program: Program, axes: tuple[str, ...]) -> Communicate:
    ranks = product(axis.ranks for axis in program.mesh if axis.name in axes)
    return Communicate("all-reduce", axes, ranks, TYPICAL, TrafficKind.WEIGHT_GRADIENTS, "")


def _alone(prices: Prices, message: Communicate) -> float:
    return _benchmark(message.kind, float(message.payload), prices.group(message), prices.cluster, message.messages)


@forgettable
@functools.lru_cache(maxsize=4096)
def _benchmark(kind: str, payload: float, group: Group, cluster: Cluster, messages: int) -> float:
    """Seconds of a collective whose group has the links for itself."""
    return float(collective_seconds(kind, payload, group, cluster, messages=messages, sharing=1).seconds)


# the stages


def rank_work(program: Program, seconds: Seconds) -> list[float]:
    """Seconds that each pipeline rank computes in a step."""
    each, found = functools.cache(seconds), [0.0] * program.ranks
    for stage, times in _stages(program):
        own = math.fsum(each(kind) * layers for kind, layers in program.partition.kinds_of(stage))
        found[program.partition.rank[stage]] += times * own
    return found


def _stages(program: Program) -> Iterator[tuple[int, float]]:
    """Each stage with how many micro-batches it takes; not all of them where the model lies there more than once."""
    each = program.plan.microbatches * len(program.partition.row.parts) / program.partition.count
    return ((stage, each) for stage in range(program.partition.count))


def _imbalance(work: list[float]) -> tuple[float, float]:
    """How much longer the fullest pipeline rank computes than the mean, and its work over the mean."""
    mean = math.fsum(work) / len(work)
    return max(work) - mean, max(work) / mean if mean else 1.0


# work that is done more than once


def _redundant(program: Program, prices: Prices, rank: int) -> float:
    """Seconds of a rank's work that other ranks of an axis do too, by the device's peaks.

    The operators of a micro-batch are divided by all axes but the pipeline's where everything is divided; what is
    divided less is done by several ranks.
    """
    if all(_word(axis.name) in (*SAMPLES, "pp") for axis in program.mesh):
        return 0.0
    whole = _whole(program.graph)
    ranks = product(axis.ranks for axis in program.mesh if axis.name != AxisName.PP)
    rate, stream = prices.device.matrix_rate(prices.form.kernels), prices.device.memory_bandwidth
    known, found = program.rank_program.priced, 0.0
    for stage, times in _stages(program):
        for run in program.partition.runs(stage) if program.partition.rank[stage] == rank else ():
            kind = kind_of(run)
            key = ("redundant", kind, ranks, rate, stream, program.graph.batch)
            if key not in known:
                work = (
                    one for actions in program.rank_program.actions(kind) for one in actions if isinstance(one, Compute)
                )
                known[key] = math.fsum(_twice(action, whole, ranks, rate, stream) for action in work)
            found += known[key] * run.times * times
    return found


@forgettable
@functools.lru_cache(maxsize=64)
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


def _exhausted(program: Program) -> Iterator[Exhausted]:
    """Axes that cannot have twice as many ranks; those that divide the batch count as one."""
    setting = program.setting
    model = facts(setting.graph)
    ranks: dict[str, int] = {}
    for axis in program.mesh:
        for word in {"dp" if _word(axis.name) in SAMPLES else _word(axis.name), _word(axis.name)}:
            if word not in SAMPLES or word in ("dp", "ep"):
                ranks[word] = ranks.get(word, 1) * axis.ranks
    for word, count in ranks.items():
        most, of = _most(word, setting, model)
        if most and 2 * count > most:
            yield Exhausted(word, count, most, of, setting.plan.microbatches)


def _samples(microbatches: int) -> str:
    return "samples of the batch" if microbatches == 1 else f"samples of each of {microbatches} micro-batches"


def _word(axis: str) -> str:
    """The strategy that an axis belongs to: one may have several."""
    return axis.partition(".")[0]


def _most(word: str, setting: Setting, model: Facts) -> tuple[int, str]:
    """The most ranks of a strategy, and what limits it; 0 where nothing is known to."""
    if word in ("filter", "channel", "spatial"):
        most, by = model.limit(word)
        return most, f"divided parts of {by}"
    return {
        "dp": (setting.graph.batch, _samples(setting.plan.microbatches)),
        "tp": (model.heads, "heads"),
        "cp": (model.sequence, "tokens of a sequence"),
        "ep": (model.experts, "experts"),
        "pp": (model.layers, "layers"),
    }.get(word, (0, ""))
