"""What plans take at least, in seconds and in bytes: figures that cost microseconds and are never above the full price.

A rank's device is busy for all of its layers with all micro-batches, messages that layers wait for included, and its
host for all of their launches. It does not begin before the first micro-batch has gone forward through the stages
before its first one; and where its last slot is that stage's backward pass, the last micro-batch still has to go back
through them. What is left out (weight traffic, updates, sends between stages, waits in between) only adds to this, so
no plan is priced below its bound. So are messages that may run beside another pass. Of memory it counts what rests,
and the activations of micro-batches under way.

Ranks wait on average for the messages of all layers in equal shares: this alone is asked first, since it needs no price
of a kernel.

The search leaves plans out by these (`oracle.search`); a law holds them to the full price of every plan of
whole spaces (`tests/laws/test_lower_bounds.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from foretell.cost.layer_cost import LayerCost
from foretell.cost.prices import Prices
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.layers import pieces
from foretell.model.operator import PARTS
from foretell.model.operators.experts import GroupedMatmul
from foretell.model.operators.matmul import Matmul
from foretell.model.resize import with_samples
from foretell.plan.job import Job
from foretell.plan.policies.precision import Precision
from foretell.plan.schedule import SLOT_KINDS
from foretell.program.partition import PipelinePartition
from foretell.program.rank_program import BlockKind, RankProgram
from foretell.program.weight_state import WeightStatePlan
from foretell.program.weights import Weight

FOLDED = 1 - 4e-3
"""Steps of many micro-batches are folded, which comes out so much short where host and device take turns."""

ROUNDING = 1 - 1e-9
"""Sums in another order differ by less."""


class StageCounts(NamedTuple):
    """Layers of a partition by pipeline rank and kind."""

    work: Any  # on each rank
    stored: Any  # the same, with parts that a rank has twice counted once: their weights are
    before: Any  # in the stages that a micro-batch goes through before it reaches the rank
    stages: Any  # of each rank, one number
    layers: Any  # likewise
    splits: bool  # whether backward passes are in two parts
    drains: bool  # whether a rank's last slot is the backward pass of its first stage


class LayerSeconds(NamedTuple):
    """Seconds of each kind of layer for each number of samples: a row for each kind."""

    forward: Any
    backward: Any
    split_backward: Any  # in two parts together, or whole: what is less
    launches: Any  # of both passes: a number, not seconds


def stage_counts(cut: PipelinePartition, kinds: Sequence[BlockKind]) -> StageCounts:
    """The layers that each rank of a partition has, and those before it."""
    number = {kind: at for at, kind in enumerate(kinds)}
    rows = numpy.zeros((len(cut.signatures), len(kinds)))
    for row, signature in zip(rows, cut.signatures, strict=True):
        for kind, times, *_ in signature.layers:
            row[number[kind]] += times
    each = rows[numpy.array(cut.stage_signatures)]
    work, stored = numpy.zeros((cut.ranks, len(kinds))), numpy.zeros((cut.ranks, len(kinds)))
    stages, layers, had = numpy.zeros(cut.ranks), numpy.zeros(cut.ranks), set[tuple[int, int]]()
    for at, (rank, part) in enumerate(zip(cut.rank, cut.part, strict=True)):
        work[rank] += each[at] / cut.schedule.copies  # each copy of the model has its share of the micro-batches
        stages[rank] += 1 / cut.schedule.copies
        layers[rank] += cut.layers[cut.stage_signatures[at]] / cut.schedule.copies
        if (rank, part) not in had:
            stored[rank] += each[at]
            had.add((rank, part))
    schedule = cut.schedule
    drains = not (schedule.splits_backward or schedule.folded or schedule.copies > 1)
    return StageCounts(work, stored, _before(cut, each), stages, layers, schedule.splits_backward, drains)


def _before(cut: PipelinePartition, each: Any) -> Any:
    """Layers of the stages that come before the first one of each rank; nothing where micro-batches start at both
    ends."""
    found = numpy.zeros((cut.ranks, each.shape[1]))
    if cut.schedule.copies > 1:
        return found
    passed = numpy.zeros(each.shape[1])
    seen = set[int]()
    for at in cut.schedule.path(0, cut.ranks, 2 * cut.ranks, cut.chunks):
        if cut.rank[at] not in seen:
            found[cut.rank[at]] = passed
            seen.add(cut.rank[at])
        passed = passed + each[at]
    return found


def layer_seconds(costs: Sequence[Sequence[LayerCost]], sizes: Sequence[int]) -> LayerSeconds:
    """Seconds of each kind of layer; `costs` of all kinds come for some numbers of samples (0: one) at a time."""

    def row(kind: int, slot: int, what: str) -> Any:
        own = [
            numpy.broadcast_to(getattr(part[kind], what)[slot], max(1, size))
            for part, size in zip(costs, sizes, strict=True)
        ]
        return numpy.concatenate(own)

    kinds = range(len(costs[0]))
    forward, backward, inputs, weights = (
        numpy.array([row(kind, slot, "alone") for kind in kinds]) for slot in range(len(SLOT_KINDS))
    )
    launches = numpy.array([row(kind, 0, "launches") + row(kind, 1, "launches") for kind in kinds])
    return LayerSeconds(forward, backward, numpy.minimum(backward, inputs + weights), launches)


def layer_waits(local: RankProgram, kinds: Sequence[BlockKind], prices: Prices, several: int) -> Any:
    """Seconds of messages of each kind of layer that nothing hides, in both passes: rows of arrays."""
    nothing = numpy.zeros(max(1, several))
    return numpy.array([sum(map(prices.waited, local.messages(kind)), nothing) for kind in kinds])


def least_waits(counts: StageCounts, waits: Any, at: Any, microbatches: Any) -> Any:
    """Of plans with so many micro-batches, whose numbers of samples are `at` these places: ranks share out at best
    equally what all layers wait for. It needs no price of a kernel, and excludes whole ways to divide layers."""
    return (counts.work.mean(axis=0) @ waits)[at] * microbatches * ROUNDING


class RankSeconds(NamedTuple):
    """Seconds of each rank of a partition for each number of samples: of a micro-batch, and once a step."""

    device: Any
    launches: Any  # a number
    once: Any


def rank_seconds(counts: StageCounts, layers: LayerSeconds) -> RankSeconds:
    """What each rank is busy with for a micro-batch, and what comes before and after all of them."""
    back = layers.split_backward if counts.splits else layers.backward
    once = counts.before @ layers.forward + (counts.before @ layers.backward if counts.drains else 0.0)
    return RankSeconds(counts.work @ (layers.forward + back), counts.work @ layers.launches, once)


class HostFigures(NamedTuple):
    """How a trainer launches, as the engine's tables have it."""

    launch: float
    layer: float
    growth: float
    microbatch: float


def least_seconds(counts: StageCounts, ranks: RankSeconds, host: HostFigures, at: Any, microbatches: Any) -> Any:
    """Of plans with so many micro-batches, whose numbers of samples are `at` these places."""
    device = ranks.device[:, at] * microbatches + ranks.once[:, at]
    by_layer = host.launch * ranks.launches[:, at] + (host.layer * counts.layers)[:, None]
    launched = (by_layer * host.growth + (host.microbatch * counts.stages)[:, None]) * microbatches
    return numpy.maximum(device, launched * FOLDED).max(axis=0) * ROUNDING


def bytes_by_kind(
    kinds: Sequence[BlockKind], local: RankProgram, weight_state: WeightStatePlan, gradients: bool
) -> Any:
    """Bytes of weights and states, and of gradients that rest, on a rank for a layer of each kind; those of several
    kinds are left out."""
    layer = {(one.block, one.start, one.stop): one.layer for one in pieces(local.graph) if one.layer}
    own = {
        kind: [_in_layer(weight_state.on_axes(weight, local.sampled), layer, kind) for weight in local.weights(kind)]
        for kind in kinds
    }
    users: dict[tuple[int, int], int] = {}
    for weights in own.values():
        for weight in weights:
            users[weight.key[:2]] = users.get(weight.key[:2], 0) + 1
    found: list[float] = []
    for kind in kinds:
        resting = weight_state.resting([one for one in own[kind] if users[one.key[:2]] == 1], versions=1, evenly=True)
        found.append(resting.weights + resting.states + (resting.gradients if gradients else 0.0))
    return numpy.array(found)


def _in_layer(weight: Weight, layer: Mapping[tuple[int, int, int], str], kind: BlockKind) -> Weight:
    """A weight of a kind with a layer that has it: some optimizers have other states for matrices of layers."""
    return weight._replace(layer=layer.get(kind.operators, ""))


def resting_bytes(counts: StageCounts, kinds: Any) -> Any:
    """Of each rank of a plan whose layers rest in so many bytes each."""
    return (counts.stored @ kinds) * ROUNDING


class FlightBytes(NamedTuple):
    """What micro-batches hold on each rank of a partition, at least, for each number of samples."""

    kept: Any  # one that is under way, in one of the rank's stages
    begun: Any  # one while it goes forward


def held_bytes(cut: PipelinePartition, kept: Any, peaks: Any) -> FlightBytes:
    """Of what each stage signature keeps, and holds at most in a forward pass: rows of arrays."""
    own: list[list[int]] = [[] for _ in range(cut.ranks)]
    for rank, signature in zip(cut.rank, cut.stage_signatures, strict=True):
        own[rank].append(signature)
    most = numpy.maximum(kept, peaks)
    return FlightBytes(*(numpy.array([each[rows].min(axis=0) for rows in own]) for each in (kept, most)))


def in_flight(cut: PipelinePartition, microbatches: int) -> list[float]:
    """Of so many micro-batches those that pass a stage of each rank at once; one, where parts of them may be gone."""
    schedule = cut.schedule
    if schedule.forward or schedule.splits_backward or schedule.copies > 1 or not schedule.flushes:
        return [1.0] * cut.ranks
    return [
        float(round(schedule.in_flight(rank, cut.ranks, microbatches, cut.chunks) * cut.chunks))
        for rank in range(cut.ranks)
    ]


def least_held(flying: Any, held: FlightBytes, at: Any) -> Any:
    """Bytes on each rank of plans with so many micro-batches in flight, whose numbers of samples are `at` these
    places."""
    return (flying - 1) * held.kept[:, at] + held.begun[:, at]


def roofline(graph: Graph, job: Job, precision: Precision, cluster: Cluster) -> float:
    """Seconds of the products with weights at the peak of all devices: no plan takes less.

    Those of experts count with the rows routed to them. Attention is left out, because its kernels skip what is
    masked, and so are convolutions, which may do with less work than their definition (Winograd's algorithm). What is
    not trained is left out where the graph says so.
    """
    whole = with_samples(graph, job.batch)
    products = [(block, node) for block, node in whole.nodes() if isinstance(node.operator, Matmul | GroupedMatmul)]
    work = sum(
        node.cost(part, whole.widths(block, node)).matrix * block.times for block, node in products for part in PARTS
    )
    return work / (cluster.ranks * cluster.device.matrix_rate(precision.format.kernels)) * ROUNDING
