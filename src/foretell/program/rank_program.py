"""A local program: what one rank does with its share of one micro-batch, kind of layer by kind of layer.

It depends on the axes that divide layers, the size of a micro-batch and what is kept of it, not on how many stages
the pipeline has or how many ranks hold copies: so plans that differ only in these share it, with its prices.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from foretell.model.layers import EqualLayers
from foretell.model.resize import skeleton
from foretell.plan.recomputation import Recomputation
from foretell.program.action import Actions, Allocate, Copy, Free
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
from foretell.program.sharding.layout import Layout
from foretell.program.stage_runs import StackedRuns, StageRuns, Uneven
from foretell.program.weights import Weight, sampled, used
from foretell.units import Quantity


class BlockKind(NamedTuple):
    """Operators of a block; equal layers, wherever they are, are of one kind."""

    block: int
    start: int
    stop: int


def kind_of(run: EqualLayers) -> BlockKind:
    return BlockKind(run.block, run.start, run.stop)


class RankProgram:
    """The bodies of every kind of layer, found when they are asked for; `priced` is for whoever prices them."""

    def __init__(self, layout: Layout, rule: Recomputation, plain: RankProgram | None = None) -> None:
        self.layout, self.graph = layout, layout.graph
        self.bodies = Bodies(layout, rule)
        self.plain = plain or self  # the same, where nothing runs again
        self.resident = self  # the same, whose activations stay on the device between the passes
        messages = (one for found in layout.travels.values() for one in found)
        self.talks = tuple(sorted({name for one in messages for name in one.axes}))  # axes that layers talk along
        self.priced: dict[Any, Any] = {}
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
        found.actions = functools.cache(found._actions)
        return found

    def _actions(self, kind: BlockKind) -> tuple[Actions, Actions]:
        """The forward and the backward pass of a kind of layer."""
        forward = self.bodies.forward(*kind, "").actions
        backward = self.bodies.backward(*kind, "").actions
        if self is self.resident:
            return forward, backward
        kept = self.copied(kind)
        return (*forward, Copy("activations", True, kept)), (Copy("activations", False, kept), *backward)

    def copied(self, kind: BlockKind) -> Quantity:
        """Bytes of activations that go to the host in a forward pass, and come back in the backward pass."""
        if self is self.resident:
            return 0
        forward = self.bodies.forward(*kind, "").actions
        begun = {a.name: a.bytes for a in forward if isinstance(a, Allocate) and a.kind == "activation"}
        ended = {a.name for a in forward if isinstance(a, Free) and a.when == "every"}
        return sum(size for name, size in begun.items() if name not in ended)

    def _weights(self, kind: BlockKind) -> tuple[Weight, ...]:
        """The weights that a kind of layer uses, as the first of its repetitions has them."""
        return used(self.layout, *kind)

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
        passes = self.bodies.forward(*kind, "").actions, self.bodies.making(*kind)
        return LayerMemory.of(*passes, self.layout.samples)
