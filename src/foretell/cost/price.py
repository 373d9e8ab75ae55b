"""From a program to its prices: what the layers, the messages and the weights of each stage signature cost.

Composition, search and simulation all start here. Parts that other plans had too are not priced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from foretell.cost.host import as_executed, overlap_share
from foretell.cost.layer_cost import LayerCost, layer_cost
from foretell.cost.memory import MemoryConstants, convolution_block, memory_constants
from foretell.cost.prices import Prices
from foretell.cost.weight_traffic import WeightTrafficCost, weight_traffic_cost
from foretell.hardware.cluster import Cluster
from foretell.plan.axis_names import AxisName
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.program.action import Communicate, TrafficKind
from foretell.program.activation_memory import StagePeaks, WeightBuffers
from foretell.program.lower import lower
from foretell.program.partition import PipelinePartition, StageSignature
from foretell.program.program import Program
from foretell.program.rank_program import BlockKind, RankProgram
from foretell.program.stage_activations import activation_peaks
from foretell.program.stage_runs import StageRuns
from foretell.units import Quantity


class Sends(NamedTuple):
    """Seconds of sending what crosses the ends of a stage, forward and back; and those that pass at least after its
    rank requests what it receives from before and from behind."""

    send_forward: Quantity
    send_back: Quantity
    request_forward: Quantity
    request_back: Quantity


class PricedProgram(NamedTuple):
    """One plan on one cluster, with the prices of its parts."""

    program: Program
    prices: Prices
    kinds: dict[BlockKind, LayerCost]
    signatures: tuple[StageSignature, ...]
    stages: tuple[int, ...]  # the signature of each stage
    traffic: tuple[WeightTrafficCost, ...]  # of each signature
    sends: tuple[Sends, ...]
    peaks: tuple[StagePeaks, ...]
    overlap: float  # how fast messages for weights go while a rank computes; 0: they are waited for
    constants: MemoryConstants


def priced(setting: Setting, cluster: Cluster) -> PricedProgram:
    """The program of a plan, priced on a cluster."""
    return price(lower(setting, convolution_block(cluster)), cluster)


def priced_on_kinds(setting: Setting, kinds: Sequence[Cluster], lies: Sequence[int], lead: int) -> PricedProgram:
    """The same on a cluster of several kinds of devices: `lies` says on which each rank of the pipeline does, `lead`
    which of them has the figures that are one for all (how the host launches, what memory a trainer adds)."""
    program = lower(setting, convolution_block(kinds[lead]))
    return price(replace(program, partition=program.partition.lying(lies)), kinds[lead], kinds)


def price(program: Program, cluster: Cluster, kinds: Sequence[Cluster] = ()) -> PricedProgram:
    """Price the parts of a program. `kinds`: the cluster as it is with each of its kinds of devices, for stages that
    lie on unlike ones."""
    setting, plan, trainer = program.setting, program.plan, as_executed(program.setting)
    partition, local, weight_state = program.partition, program.rank_program, program.weight_state
    prices = Prices(program.mesh, cluster, plan.policy(Precision).format, trainer)
    on = [Prices(program.mesh, one, plan.policy(Precision).format, trainer) for one in kinds] or [prices]
    signatures = tuple(partition.signatures)
    traffic = tuple(weight_traffic_cost(partition, own, local, weight_state, on[own.lies]) for own in signatures)

    def activations(own: StageRuns, weights: WeightBuffers) -> StagePeaks:
        return activation_peaks(local, own, plan, weights, partition.ranks > 1)

    return PricedProgram(
        program,
        prices,
        {kind: layer_cost(local, kind, on[kind.lies]) for kind in partition.kinds},
        signatures,
        partition.stage_signatures,
        traffic,
        stage_sends(partition, local, prices),
        stage_peaks(partition, traffic, weight_state.reshards, trainer.memory.new_gradients, activations),
        overlap_share(plan, trainer, partition.ranks > 1),
        memory_constants(setting, program.axes, cluster),
    )


def stage_sends(partition: PipelinePartition, local: RankProgram, prices: Prices) -> tuple[Sends, ...]:
    """For each stage signature."""
    return tuple(
        Sends(
            _seconds(prices.message, local, signature.sent),
            _seconds(prices.message, local, signature.back),
            _seconds(prices.asked, local, signature.received),
            _seconds(prices.asked, local, [crossing for crossing in signature.sent if crossing[2]]),
        )
        for signature in partition.signatures
    )


def _seconds(
    seconds: Callable[[Communicate], Quantity], local: RankProgram, tensors: Sequence[tuple[int, int, bool]]
) -> Quantity:
    sizes = (local.bytes((block, tensor)) for block, tensor, _ in tensors)
    return sum(seconds(Communicate("send", (AxisName.PP,), 2, size, TrafficKind.ACTIVATIONS, "")) for size in sizes)


Activations: TypeAlias = Callable[[StageRuns, WeightBuffers], StagePeaks]
"""What a micro-batch holds on a stage, with what the weights of its layers add."""


def stage_peaks(
    partition: PipelinePartition,
    traffic: Sequence[WeightTrafficCost],
    reshards: bool,
    made: bool,
    activations: Activations,
) -> tuple[StagePeaks, ...]:
    """For each stage signature what a micro-batch holds, weights that are gathered for it included.

    `reshards`: these are let go between the passes. `made`: gradients of weights are new in each step, and begin when
    the backward pass makes them.
    """
    found: list[StagePeaks] = []
    for own, cost in zip(partition.signature_runs, traffic, strict=True):
        kept, *peaks = activations(own, weight_buffers(cost, reshards, made))
        found.append(StagePeaks(kept, *(peak + cost.root_bytes for peak in peaks) if cost.root_bytes else peaks))
    return tuple(found)


def weight_buffers(cost: WeightTrafficCost, reshards: bool, made: bool) -> WeightBuffers:
    """What the weights of a stage signature add to its passes."""
    resting = cost.resting
    gradient = resting.gradients / resting.trained if made and resting.trained else 0.0
    return WeightBuffers(cost.gathered, reshards, gradient)
