"""From a program to its prices: what the layers, the messages and the weights of each stage signature cost.

Composition, search and simulation all start here. Parts that other plans had too are not priced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from foretell.cost.care import CareFigures, care_figures
from foretell.cost.host import as_executed, overlap_share
from foretell.cost.layers import LayerFigures, layer_figures
from foretell.cost.memory import Constants, convolution_block, memory_constants
from foretell.cost.stage import Prices
from foretell.hardware.cluster import Cluster
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.program.action import Communicate
from foretell.program.activation_memory import StagePeaks, WeightBuffers
from foretell.program.cutting import Cutting, Shape
from foretell.program.local import Kind, Local
from foretell.program.outline import Outline, activation_peaks
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

    outline: Outline
    prices: Prices
    kinds: dict[Kind, LayerFigures]
    signatures: tuple[Shape, ...]
    stages: tuple[int, ...]  # the signature of each stage
    traffic: tuple[CareFigures, ...]  # of each signature
    sends: tuple[Sends, ...]
    peaks: tuple[StagePeaks, ...]
    overlap: float  # how fast messages for weights go while a rank computes; 0: they are waited for
    constants: Constants


def price(setting: Setting, cluster: Cluster) -> PricedProgram:
    """Price the parts of a plan."""
    outline = Outline(setting, convolution_block(cluster))
    trainer = as_executed(setting)
    prices = Prices(outline.mesh, cluster, setting.plan.policy(Precision).format, trainer)
    partition, local, upkeep, plan = outline.cutting, outline.local, outline.upkeep, setting.plan
    traffic = tuple(care_figures(partition, signature, local, upkeep, prices) for signature in partition.shapes)

    def activations(own: StageRuns, weights: WeightBuffers) -> StagePeaks:
        return activation_peaks(local, own, plan, weights, partition.ranks > 1)

    return PricedProgram(
        outline,
        prices,
        {kind: layer_figures(local, kind, prices) for kind in partition.kinds},
        tuple(partition.shapes),
        partition.stage_shapes,
        traffic,
        stage_sends(partition, local, prices),
        stage_peaks(partition, traffic, upkeep.reshards, trainer.memory.new_gradients, activations),
        overlap_share(plan, trainer, partition.ranks > 1),
        memory_constants(setting, outline.axes, cluster),
    )


def stage_sends(partition: Cutting, local: Local, prices: Prices) -> tuple[Sends, ...]:
    """For each stage signature."""
    return tuple(
        Sends(
            _seconds(prices.message, local, signature.sent),
            _seconds(prices.message, local, signature.back),
            _seconds(prices.asked, local, signature.received),
            _seconds(prices.asked, local, [crossing for crossing in signature.sent if crossing[2]]),
        )
        for signature in partition.shapes
    )


def _seconds(
    seconds: Callable[[Communicate], Quantity], local: Local, tensors: Sequence[tuple[int, int, bool]]
) -> Quantity:
    sizes = (local.bytes((block, tensor)) for block, tensor, _ in tensors)
    return sum(seconds(Communicate("send", ("pp",), 2, size, "activations", "")) for size in sizes)


Activations: TypeAlias = Callable[[StageRuns, WeightBuffers], StagePeaks]
"""What a micro-batch holds on a stage, with what the weights of its layers add."""


def stage_peaks(
    partition: Cutting, traffic: Sequence[CareFigures], reshards: bool, made: bool, activations: Activations
) -> tuple[StagePeaks, ...]:
    """For each stage signature what a micro-batch holds, weights that are gathered for it included.

    `reshards`: these are let go between the passes. `made`: gradients of weights are new in each step, and begin when
    the backward pass makes them.
    """
    found: list[StagePeaks] = []
    for own, cost in zip(partition.shape_runs, traffic, strict=True):
        gradient = cost.resting.gradients / cost.resting.trained if made and cost.resting.trained else 0.0
        kept, *peaks = activations(own, WeightBuffers(cost.gathered, reshards, gradient))
        found.append(StagePeaks(kept, *(peak + cost.root_bytes for peak in peaks) if cost.root_bytes else peaks))
    return tuple(found)
