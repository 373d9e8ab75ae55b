"""A local program: what one rank does with its share of one micro-batch, kind of layer by kind of layer.

It depends on the axes that divide layers, the size of a micro-batch and what is kept of it, not on how many stages
the pipeline has or how many ranks hold copies: so plans that differ only in these share it, with its prices.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from foretell.model.graph import Node
from foretell.model.layers import EqualLayers
from foretell.model.operators.cross_entropy import CrossEntropy
from foretell.model.resize import skeleton
from foretell.plan.axis_names import AxisName
from foretell.plan.recomputation import Recomputation
from foretell.program.action import Actions, Allocate, Communicate, Copy, Free, TrafficKind
from foretell.program.activation_memory import (
    LayerMemory,
    MemoryProfile,
    StagePeaks,
    StageTrace,
    WeightBuffers,
    stage_trace,
)
from foretell.program.allocation_trace import PLAYED
from foretell.program.body import Bodies
from foretell.program.pass_work import PassWork
from foretell.program.sharding.layout import Layout
from foretell.program.stage_runs import StackedRuns, StageRuns, Uneven
from foretell.program.weights import Weight, sampled, used
from foretell.units import Quantity

LOSS = 4
"""Bytes of the number of rows that a loss is a mean over."""


class BlockKind(NamedTuple):
    """Operators of a block; equal layers, wherever they are, are of one kind."""

    block: int
    start: int
    stop: int
    spared: bool = False  # they save all, whatever else runs again
    lies: int = 0  # on which kind of device, where a pipeline's stages lie on unlike ones

    @property
    def operators(self) -> tuple[int, int, int]:
        """The block, the first of its operators, and the one after the last."""
        return self[:3]


def kind_of(run: EqualLayers) -> BlockKind:
    return BlockKind(run.block, run.start, run.stop, run.spared)


class RankProgram:
    """The bodies of every kind of layer, found when they are asked for; `priced` is for whoever prices them."""

    def __init__(self, layout: Layout, rule: Recomputation, plain: RankProgram | None = None) -> None:
        self.layout, self.graph, self.rule = layout, layout.graph, rule
        self.writes = PassWork(layout, rule)
        self.plain = plain or self  # the same, where nothing runs again
        self.resident = self  # the same, whose activations stay on the device between the passes
        self.sharers = 1  # ranks among which the inputs of layers that run again are divided between the passes
        messages = (one for found in layout.travels.values() for one in found)
        self.talks = tuple(sorted({name for one in messages for name in one.axes}))  # axes that layers talk along
        self.priced: dict[Any, Any] = {}
        self.work = functools.cache(self._work)
        self.actions = functools.cache(self._actions)
        self.weights = functools.cache(self._weights)
        self.runs_back = functools.cache(self._runs_back)
        self.bytes = functools.cache(self._bytes)
        self.memory = functools.cache(self._memory)
        self._profiles: dict[Any, MemoryProfile | None] = {}

    def waiting_on_host(self) -> RankProgram:
        """The same, whose activations are on the host between the passes: all that is known of this one is."""
        found = copy.copy(self)
        found.priced = {}
        found.actions, found.work = functools.cache(found._actions), functools.cache(found._work)
        return found

    @functools.cached_property
    def bodies(self) -> Bodies:
        """Where passes are written with the memory that they hold."""
        return Bodies(self.writes, self.rule)

    def _work(self, kind: BlockKind) -> tuple[Actions, Actions]:
        """What a kind of layer computes and sends in its forward and its backward pass."""
        writes = self.writes_of(kind)
        return writes.forward(*kind.operators), (*self._shared_inputs(kind), *writes.backward(*kind.operators))

    def writes_of(self, kind: BlockKind) -> PassWork:
        """Where the work of a kind of layer is written: with what runs again, or without."""
        return self.plain.writes if kind.spared else self.writes

    def messages(self, kind: BlockKind) -> Iterator[Communicate]:
        """What a kind of layer sends in both passes, whatever runs again."""
        return self.writes.messages(*kind.operators)

    def dividing_inputs(self, sharers: int) -> RankProgram:
        """The same, whose layers that run again have saved a share of their inputs, and gather the others."""
        found = self.waiting_on_host()
        found.resident, found.sharers = found, sharers
        return found

    def bodies_of(self, kind: BlockKind) -> Bodies:
        """Where the passes of a kind of layer are written: with what runs again, or without."""
        return self.plain.bodies if kind.spared else self.bodies

    def _actions(self, kind: BlockKind) -> tuple[Actions, Actions]:
        """The forward and the backward pass of a kind of layer."""
        bodies = self.bodies_of(kind)
        forward = bodies.forward(*kind.operators, "").actions
        backward = bodies.backward(*kind.operators, "").actions
        backward = (*self._shared_inputs(kind), *backward)
        if self is self.resident:
            return forward, backward
        kept = self.copied(kind)
        return (*forward, Copy("activations", True, kept)), (Copy("activations", False, kept), *backward)

    def copied(self, kind: BlockKind) -> Quantity:
        """Bytes of activations that go to the host in a forward pass, and come back in the backward pass."""
        if self is self.resident:
            return 0
        return self._left(kind) / (self.sharers if self._again(kind) else 1)

    def _shared_inputs(self, kind: BlockKind) -> Iterator[Communicate]:
        """What is gathered before a layer runs again whose inputs were saved in shares."""
        if self.sharers > 1 and self._again(kind):
            share, axes = self._left(kind) / self.sharers, (AxisName.TP,)
            yield Communicate("all-gather", axes, self.sharers, share, TrafficKind.ACTIVATIONS, "saved inputs")

    def _again(self, kind: BlockKind) -> bool:
        """Whether a kind of layer runs again."""
        again = self.writes_of(kind).recomputed.again
        return any((kind.block, at) in again for at in range(kind.start, kind.stop))

    def _left(self, kind: BlockKind) -> Quantity:
        """Bytes of activations that a forward pass leaves for the backward pass, but for those of losses."""
        forward = self.bodies_of(kind).forward(*kind.operators, "").actions
        begun = {a.name: a.bytes for a in forward if isinstance(a, Allocate) and a.kind == "activation"}
        ended = {a.name for a in forward if isinstance(a, Free) and a.when == "every"}
        return sum(size for name, size in begun.items() if name not in ended) - self.of_losses(kind)

    def of_losses(self, kind: BlockKind) -> Quantity:
        """Bytes that the losses of a kind of layer keep: as much as logits in their width, or the logits themselves.

        They stay on the device when activations go to the host: a loss runs outside the modules whose saved tensors go
        (torch.autograd.graph.save_on_cpu around a model; torchtune 0.6, recipes/full_finetune_single_device.py).
        """
        at, start, stop = kind.operators
        found = (node.inputs[0].tensor for node in self.graph.blocks[at].nodes[start:stop] if _is_loss(node))
        size = self.layout.held_bytes if self.layout.pieces else self.layout.bytes
        return sum(size(*self.graph.home(at, logits)[:2]) + LOSS for logits in found)

    def _weights(self, kind: BlockKind) -> tuple[Weight, ...]:
        """The weights that a kind of layer uses, as the first of its repetitions has them."""
        return used(self.layout, *kind.operators)

    def _runs_back(self, kind: BlockKind) -> bool:
        """Whether a kind of layer has a backward pass; frozen ones may have none."""
        return any(node.gradients for node in self.graph.blocks[kind.block].nodes[kind.start : kind.stop])

    @functools.cached_property
    def sampled(self) -> frozenset[tuple[int, int]]:
        """Parameters whose gradient is a sum over samples."""
        return sampled(skeleton(self.graph))

    def _bytes(self, tensor: tuple[int, int]) -> Quantity:
        """Of a tensor that travels, as a block calls it."""
        return self.layout.wire_bytes(*tensor)

    # memory

    def peaks(self, own: StageRuns | StackedRuns, weights: WeightBuffers, pipelined: bool) -> StagePeaks:
        """What a micro-batch holds on a stage of these layers."""
        if not own.runs:
            return StagePeaks(0.0, 0.0, 0.0, 0.0)
        if isinstance(own, StackedRuns) or own.times > PLAYED:
            profile = self._profile((own.alike, pipelined), own.runs, pipelined, long=True)
            if profile is not None:
                return profile.peaks(own.times, weights)
        if isinstance(own, StackedRuns):
            raise Uneven
        profile = self._profile((own.alike, own.times, pipelined), own.runs, pipelined, long=False)
        assert profile is not None  # only a long run can be uneven
        return profile.peaks(PLAYED, weights)

    def _profile(
        self, key: Hashable, runs: tuple[EqualLayers, ...], pipelined: bool, long: bool
    ) -> MemoryProfile | None:
        """Of stages that are alike, which have the same key."""
        if key not in self._profiles:
            self._profiles[key] = self.trace(runs, pipelined, long).profile()
        return self._profiles[key]

    def trace(self, runs: Sequence[EqualLayers], pipelined: bool, long: bool = False) -> StageTrace:
        """What a micro-batch allocates and frees on a stage; `long`: only the ends of its longest run."""
        layers = [(run, self.memory(kind_of(run))) for run in runs]
        return stage_trace(skeleton(self.graph), layers, pipelined=pipelined, long=long)

    def _memory(self, kind: BlockKind) -> LayerMemory:
        """What a kind of layer allocates and frees."""
        bodies = self.bodies_of(kind)
        passes = bodies.forward(*kind.operators, "").actions, bodies.making(*kind.operators)
        return LayerMemory.of(*passes, self.layout.samples)


def _is_loss(node: Node) -> bool:
    return isinstance(node.operator, CrossEntropy) and bool(node.gradients)
