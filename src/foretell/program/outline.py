"""The outline of a program: which local program, which stage has what, and which stages are alike.

A program written out has every stage (`lower.lower`); its numbers need each shape of stage only once.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from foretell.model.fold import written_out
from foretell.model.graph import Graph
from foretell.model.layers import Piece, Run, by_layers, runs
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.schedule import Schedule, find
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import MeshAxis
from foretell.plan.trainer import Trainer
from foretell.program.boundary import Crossing, Cut, crossings, cuts
from foretell.program.layout import Layout, layout
from foretell.program.local import Kind, Local, kind_of
from foretell.program.mesh import mesh, stride
from foretell.program.program import Axis
from foretell.program.replay import Passes
from foretell.program.spread import Conventions
from foretell.program.stages import stages
from foretell.program.upkeep import Upkeep
from foretell.program.weights import Weight, key_of, shared_between_blocks
from foretell.units import ceil_div, product

Key = tuple[int, int, int]
"""Block, tensor and repetition of a weight."""


class Row(NamedTuple):
    """The model cut into parts: the pieces of each, equal ones in a row put together, and what crosses into each."""

    parts: tuple[tuple[Piece, ...], ...]
    runs: tuple[tuple[Run, ...], ...]
    crossings: tuple[tuple[Crossing, ...], ...]


@functools.lru_cache(maxsize=1024)
def row(graph: Graph, count: int, split: tuple[int, ...], rule: str) -> Row:
    """Cut a model into so many parts."""
    parts = stages(graph, count, split, rule)
    return Row(parts, tuple(runs(part) for part in parts), crossings(graph, parts))


class Shape(NamedTuple):
    """All that the numbers of a stage depend on, besides the local program and the plan."""

    layers: tuple[tuple[Kind, int, bool, bool], ...]  # kind, times, whether with the block's first and last repetition
    first: bool  # no stage is before it
    last: bool
    received: tuple[int, ...]  # bytes that cross from the rank before, and to the rank after
    sent: tuple[int, ...]
    holders: int  # ranks that have this part
    tied: tuple[tuple[Key, int], ...]  # weights that several parts may have, and how many ranks do
    had: frozenset[int]  # of these and of parts, those that an earlier stage of its rank has
    versions: int  # of its weights


class Outline:
    """One plan for one model, before it is written out."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.plan, self.trainer = setting, setting.plan, setting.trainer
        self.axes = mesh(self.plan)
        self.graph = as_lowered(setting.graph, self.axes)
        self.pipeline = self.plan.axis(Pipeline) or Pipeline(ranks=1)
        self.ranks = self.pipeline.ranks
        self.schedule: Schedule = find(self.pipeline.schedule if self.ranks > 1 else "1f1b")
        self.chunks = (self.pipeline.chunks or self.schedule.least_chunks) if self.ranks > 1 else 1
        self.recompute = self.plan.policy(Recompute)
        self.offload = self.plan.policy(Offload)
        space = tuple(axis for axis in self.axes if axis.name != "pp")
        multiple = self.trainer.tensor.vocabulary_multiple
        self.local = local(
            self.graph,
            space,
            _conventions(self.plan, self.trainer),
            multiple * product(a.ranks for a in space if a.splitting.flows),
            self.recompute.again,
            self.offload.activations,
        )
        self.upkeep = Upkeep(setting, self.axes)
        split, rule = self.pipeline.split, self.trainer.pipeline.split
        self.row = row(self.graph, self.schedule.parts(self.ranks, self.chunks), split, rule)

    @property
    def layout(self) -> Layout:
        return self.local.layout

    # axes

    @functools.cached_property
    def mesh(self) -> tuple[Axis, ...]:
        return tuple(self._axis(axis) for axis in self.axes)

    def _axis(self, axis: MeshAxis) -> Axis:
        exchange = axis.exchange
        apart = stride(self.axes, (axis.name,))
        return Axis(axis.name, axis.ranks, apart, exchange.waits, exchange.staleness, self.divides(axis.name))

    def divides(self, name: str) -> bool:
        """Whether an axis divides any operator; the pipeline always does."""
        return name == "pp" or any(any(one.places.values()) for one in self.layout.spreads if one.axis.name == name)

    # stages

    @property
    def count(self) -> int:
        """Of stages: those of all ranks."""
        return self.ranks * self.chunks

    def part(self, stage: int) -> int:
        return self.schedule.part_of(stage, self.ranks, self.chunks)

    def rank(self, stage: int) -> int:
        return self.schedule.rank_of(stage, self.ranks, self.chunks)

    @functools.cached_property
    def links(self) -> dict[int, tuple[int, int]]:
        """For each stage the one before and the one after it; -1 where there is none."""
        found = {at: [-1, -1] for at in range(self.count)}
        for path in self._paths():
            for one, other in pairwise(path):
                found[one][1], found[other][0] = other, one
        return {at: (before, after) for at, (before, after) in found.items()}

    def _paths(self) -> set[range]:
        """The ways of micro-batches through the stages: one, or one for each direction."""
        microbatches = self.plan.microbatches
        return {self.schedule.path(at, self.ranks, microbatches, self.chunks) for at in {0, microbatches - 1}}

    def apart(self, one: int, other: int) -> bool:
        """Whether two stages that follow each other lie on different ranks."""
        return min(one, other) >= 0 and self.rank(one) != self.rank(other)

    @functools.cached_property
    def cuts(self) -> tuple[tuple[Cut, ...], ...]:
        """For each part what crosses into it."""
        return cuts(self.layout, self.row.crossings)

    def received(self, at: int) -> tuple[Cut, ...]:
        """What a stage gets from another rank."""
        return self.cuts[self.part(at)] if self.apart(self.links[at][0], at) else ()

    def sent(self, at: int) -> tuple[Cut, ...]:
        after = self.links[at][1]
        return self.cuts[self.part(after)] if self.apart(at, after) else ()

    # weights

    @functools.cached_property
    def _common(self) -> tuple[frozenset[Key], ...]:
        """For each part its weights that other blocks use too: stages may share them."""
        several = shared_between_blocks(self.graph)
        kinds = ((kind_of(run) for run in own) for own in self.row.runs)
        keys = ((weight.key for kind in own for weight in self.local.weights(kind)) for own in kinds)
        return tuple(frozenset(key for key in own if key[:2] in several) for own in keys)

    @functools.cached_property
    def _ranks_of(self) -> tuple[frozenset[int], ...]:
        """The pipeline ranks that have each part: several where the model lies on the pipeline more than once."""
        found: list[set[int]] = [set() for _ in self.row.parts]
        for stage in range(self.count):
            found[self.part(stage)].add(self.rank(stage))
        return tuple(map(frozenset, found))

    @functools.cached_property
    def _holders(self) -> dict[Key, frozenset[int]]:
        """The pipeline ranks that have each weight which parts may share."""
        found: dict[Key, frozenset[int]] = defaultdict(frozenset)
        for part, keys in enumerate(self._common):
            for key in keys:
                found[key] |= self._ranks_of[part]
        return found

    def holders(self, at: int, own: Sequence[Weight]) -> dict[Key, frozenset[int]]:
        """The pipeline ranks that have each of a stage's weights."""
        usual = self._ranks_of[self.part(at)]
        return {weight.key: self._holders.get(weight.key, usual) for weight in own}

    def _earlier(self, at: int) -> set[int]:
        """Parts that earlier stages of a stage's rank have."""
        mine = self.schedule.stages_of(self.rank(at), self.ranks, self.chunks) if self.chunks > 1 else ()
        return {self.part(stage) for stage in mine if stage < at}

    def own(self, at: int) -> list[Weight]:
        """The weights that a stage has to care for, in the order it uses them: no earlier stage of its rank does."""
        part, earlier = self.part(at), self._earlier(at)
        if part in earlier:
            return []
        had = {key for other in earlier for key in self._common[other]}
        found: dict[Key, Weight] = {}
        for piece in self.row.parts[part]:
            for weight in self.local.weights(Kind(piece.block, piece.start, piece.stop)):
                key = key_of(weight, piece.block, piece.repetition)
                if key not in found and key not in had:
                    found[key] = weight._replace(key=key, layer=piece.layer)
        return list(found.values())

    # shapes

    @functools.cached_property
    def shapes(self) -> dict[Shape, list[int]]:
        """The stages of each shape."""
        found: dict[Shape, list[int]] = defaultdict(list)
        for at in range(self.count):
            found[self._shape(at)].append(at)
        return dict(found)

    def _shape(self, at: int) -> Shape:
        before, after = self.links[at]
        part = self.part(at)
        common = sorted(self._common[part])
        earlier = self._earlier(at)
        return Shape(
            tuple(self._layers(run) for run in self.row.runs[part]),
            before < 0,
            after < 0,
            tuple(cut.bytes for cut in self.received(at)),
            tuple(cut.bytes for cut in self.sent(at)),
            len(self._ranks_of[part]),
            tuple((key, len(self._holders[key])) for key in common),
            frozenset(other for other in earlier if other == part or self._common[other] & self._common[part]),
            self.schedule.weight_versions(self.rank(at), self.ranks),
        )

    def _layers(self, run: Run) -> tuple[Kind, int, bool, bool]:
        last = run.first + run.times == self.graph.blocks[run.block].times
        return kind_of(run), run.times, run.first == 0, last

    # memory of a micro-batch

    def passes(self, at: int, gathered: tuple[float, ...] = ()) -> Passes:
        """What a micro-batch holds on a stage: with weights gathered for each run of layers, if any are."""
        own = self.row.runs[self.part(at)]
        layers = sum(run.times for run in own if run.layer)
        passes = self._played(own, gathered)
        if not layers:
            return passes
        if self.recompute.segment(layers) > 1:
            passes = self._segmented(own, passes, layers)
        if self.offload.activations:  # two layers at a time: one at work, one on its way
            waiting = min(passes.kept, 2 * passes.kept / layers)
            gone = passes.kept - waiting
            passes = Passes(waiting, passes.forward_peak - gone, passes.backward_peak - gone)
        return passes

    def _played(self, own: tuple[Run, ...], gathered: tuple[float, ...] = (), plain: bool = False) -> Passes:
        resharded = self.upkeep.reshards
        return self.local.passes(own, gathered, resharded, plain, plain or self.ranks > 1)

    def _segmented(self, own: tuple[Run, ...], passes: Passes, layers: int) -> Passes:
        """Only the input of each segment is kept; its layers run again together and keep all for their backward."""
        whole = self._played(own, plain=True).kept
        between = tuple(run for run in own if not run.layer)
        ends = self._played(between, plain=True).kept if between else 0.0
        inputs = max(0.0, passes.kept - ends) / layers
        each = max(0.0, whole - ends) / layers
        size = self.recompute.segment(layers)
        kept = ends + ceil_div(layers, size) * inputs
        gone = passes.kept - kept
        return Passes(kept, passes.forward_peak - gone, passes.backward_peak - gone + (size - 1) * each)


@functools.lru_cache(maxsize=4096)
def local(
    graph: Graph,
    space: tuple[MeshAxis, ...],
    conventions: Conventions,
    vocabulary_multiple: int,
    again: str,
    waits_on_host: bool,
) -> Local:
    """The local program of a model on some axes; the vocabulary is padded to a multiple, if there is one."""
    padding = {"vocab": vocabulary_multiple} if vocabulary_multiple else {}
    return Local(layout(graph, space, conventions, padding), again, waits_on_host)


def _conventions(plan: Plan, trainer: Trainer) -> Conventions:
    return Conventions(
        each_consumer=trainer.tensor.reduce == "consumer",
        gather_again=trainer.tensor.regather,
        synchronised=plan.policy(BatchNorm).synchronised,
        gathers_logits=trainer.tensor.loss == "gathered",
        whole_bias=trainer.tensor.row_bias == "whole",
    )


def as_lowered(graph: Graph, axes: tuple[MeshAxis, ...]) -> Graph:
    """The model as a program refers to it: a block for each layer, or for equal ones.

    Without repetitions where a part of it may begin and end anywhere.
    """
    if any(axis.splitting.only for axis in axes):
        graph = msgspec.structs.replace(graph, blocks=written_out(graph.blocks))
    return by_layers(graph)
