"""What the paper's oracle is asked and what it answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import msgspec

from foretell.model.zoo._layer_file import LayerFile, LayerLine
from foretell.replicas.paradl.choice import Choice
from foretell.replicas.paradl.platform import HockneyLink
from foretell.replicas.paradl.release import Release
from foretell.units import Quantity, ceil_div, product


class ProjectionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy on one model. Numbers of ranks and the batch may be arrays, all of one length."""

    file: LayerFile
    release: Release
    batch: Quantity  # of all ranks together (B)
    groups: Quantity = 1  # ranks or groups that take different samples (p, or p1 of a hybrid)
    ranks: Quantity = 1  # that work on one sample together (p, or p2 of a hybrid)
    segments: Quantity = 1  # micro-batches of a pipeline (S)
    split: Choice = ()  # for each layer whether `ranks` split it

    @property
    def steps(self) -> Quantity:
        """Steps an epoch, the last one filled up; Table 3 does not round."""
        return self.file.samples / self.batch if self.release.clean else ceil_div(self.file.samples, self.batch)

    @property
    def samples(self) -> Quantity:
        """Samples of one group in a step."""
        return self.batch / self.groups

    @property
    def layers(self) -> list[tuple[LayerLine, bool]]:
        return list(zip(self.file.layers, self.split or (False,) * len(self.file.layers), strict=True))

    def link(self, ranks: Quantity) -> HockneyLink:
        return self.release.platform.link(ranks)

    def size(self, items: Quantity) -> Quantity:
        """Bytes of so many elements."""
        return items * self.release.platform.item

    def most_samples(self, activations: Quantity, weights: Quantity) -> Quantity:
        """Samples of a group for which the memory of one rank is enough."""
        room = self.release.platform.memory / self.release.gamma
        return (room / self.release.platform.item / 2 - weights) / activations

    def stages(self) -> list[list[LayerLine]]:
        """Layers in order, a new stage when the mean of all stages would be passed: the tool's greedy rule."""
        mean = self.file.seconds / self.ranks
        stages: list[list[LayerLine]] = [[]]
        filled = 0.0
        for layer in self.file.layers:
            filled += layer.seconds
            if stages[-1] and filled > mean and len(stages) < self.ranks:
                stages.append([])
                filled = layer.seconds
            stages[-1].append(layer)
        return stages


class Term(msgspec.Struct, frozen=True):
    """One kind of communication: over which axis, and its seconds an epoch."""

    name: str
    axis: str
    seconds: Quantity


class ParadlStage(msgspec.Struct, frozen=True):
    """Layers of one rank of a pipeline."""

    first: str
    last: str
    layers: int
    seconds: float  # a sample


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the paper's table, in numbers: seconds are of an epoch."""

    strategy: str
    ranks: Quantity
    batch: Quantity
    steps: Quantity
    computation: Quantity
    bubble: Quantity = 0.0  # the part of the computation in which a pipeline fills and drains
    terms: tuple[Term, ...] = ()
    memory: Quantity  # bytes of one rank
    most_samples: Quantity  # of one group, for which the memory of a rank would be enough
    stages: tuple[ParadlStage, ...] = ()

    @property
    def communication(self) -> Quantity:
        return sum((term.seconds for term in self.terms), 0.0)

    @property
    def seconds(self) -> Quantity:
        return self.computation + self.communication

    @property
    def cost(self) -> Quantity:
        """Ranks times minutes, each begun minute whole."""
        return self.ranks * whole(self.seconds / 60)

    def a_step(self, seconds: Quantity) -> Quantity:
        """Of one step, what `seconds` are of an epoch."""
        return seconds / self.steps


Row: TypeAlias = Callable[[ProjectionQuestion], Projection]


def projected(
    q: ProjectionQuestion,
    strategy: str,
    computation: Quantity,
    terms: tuple[Term, ...],
    activations: Quantity,
    weights: Quantity,
) -> Projection:
    """A row; activations are elements for one sample of a group, each with its gradient, as weights are."""
    return Projection(
        strategy=strategy,
        ranks=q.groups * q.ranks,
        batch=q.batch,
        steps=q.steps,
        computation=computation,
        terms=terms,
        memory=q.release.gamma * 2 * q.size(q.samples * activations + weights),
        most_samples=q.most_samples(activations, weights),
    )


def pipelined(
    q: ProjectionQuestion, rounds: Quantity, kept: Quantity, activations: Callable[[list[LayerLine]], Quantity]
) -> Projection:
    """The row of a pipeline: stage i is on rank i, and the slowest stage sets the pace of all `rounds` of samples.

    `kept` samples are in memory, `activations` the elements that layers keep of each.
    """
    stages, slots = q.stages(), q.ranks + q.segments - 1
    computation = rounds * max(sum(layer.seconds for layer in stage) for stage in stages)
    sizes = [q.size(q.batch / q.segments * product(stage[-1].y)) for stage in stages[:-1]]
    sent = max((q.link(at + 2).send(size) for at, size in enumerate(sizes)), default=0.0)
    held = [(activations(stage), sum(product(layer.w) for layer in stage)) for stage in stages]
    return Projection(
        strategy="pipeline",
        ranks=q.ranks,
        batch=q.batch,
        steps=q.steps,
        computation=computation,
        bubble=computation * (q.ranks - 1) / slots,
        terms=(Term("activations to the next stage", "pp", 2 * q.file.samples / q.batch * (slots - 1) * sent),),
        memory=max(q.release.gamma * 2 * q.size(kept * inputs + weights) for inputs, weights in held),
        most_samples=min(q.most_samples(inputs, weights) for inputs, weights in held) * q.batch / kept,
        stages=tuple(
            ParadlStage(stage[0].name, stage[-1].name, len(stage), sum(layer.seconds for layer in stage))
            for stage in stages
        ),
    )


def whole(value: Quantity) -> Quantity:
    """The next whole number, for numbers or arrays."""
    if isinstance(value, int | float):
        return math.ceil(value)
    import numpy

    return numpy.ceil(value)


def half(layer: LayerLine) -> int:
    """Neighbouring positions that a window along the first extent sees on one side (0 for a window of 2)."""
    return (layer.w[2] - 1) // 2


def face(shape: tuple[int, ...]) -> int:
    """Elements of one slice across the first extent."""
    return shape[0] * product(shape[2:])
