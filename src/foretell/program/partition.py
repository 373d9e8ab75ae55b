"""How a model is cut into the stages of a pipeline, and which stages are alike.

It depends on the order of the model's operators, the schedule and the number of stages, not on sizes: every local
program of a model shares it.
"""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from foretell.caches import forgettable
from foretell.model.evaluated import trains
from foretell.model.graph import Graph
from foretell.model.layers import EqualLayers, LayerPiece, runs
from foretell.plan.recomputation import Recomputation
from foretell.plan.schedule import Schedule, find
from foretell.plan.strategies.pipeline import Pipeline
from foretell.program.boundary import BoundaryCrossing, crossings
from foretell.program.rank_program import BlockKind, RankProgram, kind_of
from foretell.program.stage_runs import StageRuns
from foretell.program.stages import stages
from foretell.program.weight_state import WeightStatePlan
from foretell.program.weights import Weight, key_of, parameters_of, shared_between_blocks

Key: TypeAlias = tuple[int, int, int]
"""Block, tensor and repetition of a weight."""


class ModelParts(NamedTuple):
    """The model cut into parts: the pieces of each, equal ones in a row put together, and what crosses into each."""

    parts: tuple[tuple[LayerPiece, ...], ...]
    runs: tuple[tuple[EqualLayers, ...], ...]
    crossings: tuple[tuple[BoundaryCrossing, ...], ...]
    spared: frozenset[str] = frozenset()  # layers that save all, whatever else runs again


@forgettable
@functools.lru_cache(maxsize=1024)
def model_parts(
    graph: Graph, count: int, split: tuple[int, ...], rule: str, spares: Recomputation | None = None
) -> ModelParts:
    """Cut a model into so many parts; `spares` says which layers of each save all, if some do."""
    parts = stages(graph, count, split, rule)
    if spares is not None:
        whole = model_parts(graph, count, split, rule)
        names = [list(dict.fromkeys(piece.layer for piece in part if piece.layer)) for part in parts]
        told = frozenset(name for own in names for layer, name in enumerate(own) if spares.spares(layer))
        each = zip(whole.runs, names, strict=True)
        return whole._replace(runs=tuple(tuple(_told_apart(own, of, spares)) for own, of in each), spared=told)
    return ModelParts(parts, tuple(runs(part) for part in parts), crossings(graph, parts))


def _told_apart(own: Sequence[EqualLayers], names: list[str], rule: Recomputation) -> Iterator[EqualLayers]:
    """The runs of a stage of these layers, cut where layers that run again meet those that a rule spares."""
    for run in own:
        if not run.layer:
            yield run
            continue
        layer = first = names.index(run.layer)
        spared = [rule.spares(one) for one in range(first, first + run.times)]
        for word, same in groupby(spared):
            times = len(list(same))
            yield run._replace(first=run.first + layer - first, times=times, layer=names[layer], spared=word)
            layer += times


class StageSignature(NamedTuple):
    """All that the numbers of a stage depend on, besides the local program and the plan."""

    layers: tuple[
        tuple[BlockKind, int, bool, bool], ...
    ]  # kind, times, whether with the block's first and last repetition
    first: bool  # no stage is before it
    last: bool
    # tensors that cross from the rank before, as a block calls them, and whether a gradient goes back
    received: tuple[tuple[int, int, bool], ...]
    sent: tuple[tuple[int, int, bool], ...]  # and to the rank after
    holders: int  # ranks that have this part
    tied: tuple[tuple[Key, int], ...]  # weights that several parts may have, and how many ranks do
    had: frozenset[int]  # parts of earlier stages of its rank that have some of its weights
    versions: int  # of its weights

    @property
    def lies(self) -> int:
        """The kind of device that its layers lie on."""
        return self.layers[0][0].lies if self.layers else 0

    @property
    def back(self) -> tuple[tuple[int, int, bool], ...]:
        """What of it a gradient goes back for."""
        return tuple(crossing for crossing in self.received if crossing[2])

    @property
    def gets_back(self) -> bool:
        """Whether gradients come back from the rank after."""
        return any(trained for *_, trained in self.sent)


class PipelinePartition:
    """One model on one pipeline."""

    def __init__(
        self, graph: Graph, pipeline: Pipeline, rule: str, spares: Recomputation | None, paired: bool = False
    ) -> None:
        self.graph = graph
        self.ranks = pipeline.ranks
        found = find(pipeline.schedule if self.ranks > 1 else "1f1b")
        schedule = found.in_pairs() if paired else found
        self.schedule: Schedule = schedule if trains(graph) else schedule.forward_only()
        self.chunks = (pipeline.chunks or self.schedule.least_chunks) if self.ranks > 1 else 1
        self.row = model_parts(graph, self.schedule.parts(self.ranks, self.chunks), pipeline.split, rule, spares)
        self.part = [self.schedule.part_of(at, self.ranks, self.chunks) for at in range(self.count)]
        self.rank = [self.schedule.rank_of(at, self.ranks, self.chunks) for at in range(self.count)]
        self.lies: tuple[int, ...] = (0,) * self.count  # on which kind of device each stage does

    def lying(self, on: Sequence[int]) -> PipelinePartition:
        """The same with each rank of the pipeline on a kind of device: stages are alike that lie on one."""
        found = copy.copy(self)
        for name in ("signatures", "signature_runs", "kinds", "layers", "stage_signatures"):
            vars(found).pop(name, None)  # what is known of stages that all lie on one kind
        found.lies = tuple(on[rank] for rank in self.rank)
        return found

    @property
    def count(self) -> int:
        """Of stages: those of all ranks."""
        return self.ranks * self.chunks

    def runs(self, at: int) -> tuple[EqualLayers, ...]:
        """The layers of a stage."""
        return self.row.runs[self.part[at]]

    def kinds_of(self, at: int) -> Iterator[tuple[BlockKind, int]]:
        """The kinds of a stage's layers, and how many layers in a row are of each."""
        return ((kind_of(run)._replace(lies=self.lies[at]), run.times) for run in self.runs(at))

    # who follows whom

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
        count = 2 * self.ranks
        return {self.schedule.path(at, self.ranks, count, self.chunks) for at in (0, count - 1)}

    def _apart(self, one: int, other: int) -> bool:
        """Whether two stages that follow each other lie on different ranks."""
        return min(one, other) >= 0 and self.rank[one] != self.rank[other]

    def receives(self, at: int) -> int:
        """The part whose crossings a stage gets from another rank; -1: none."""
        return self.part[at] if self._apart(self.links[at][0], at) else -1

    def sends(self, at: int) -> int:
        after = self.links[at][1]
        return self.part[after] if self._apart(at, after) else -1

    # weights

    @functools.cached_property
    def _common(self) -> tuple[frozenset[Key], ...]:
        """For each part its weights that other blocks use too: stages may share them."""
        several = shared_between_blocks(self.graph)
        kinds = ((kind_of(run) for run in own) for own in self.row.runs)
        homes = ((home for kind in own for home in parameters_of(self.graph, *kind.operators)) for own in kinds)
        return tuple(frozenset((*home, 0) for home in own if home in several) for own in homes)

    @functools.cached_property
    def _ranks_of(self) -> tuple[frozenset[int], ...]:
        """The pipeline ranks that have each part: several where the model lies on the pipeline more than once."""
        found: list[set[int]] = [set() for _ in self.row.parts]
        for stage in range(self.count):
            found[self.part[stage]].add(self.rank[stage])
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
        usual = self._ranks_of[self.part[at]]
        return {weight.key: self._holders.get(weight.key, usual) for weight in own}

    def _earlier(self, at: int) -> set[int]:
        """Parts that earlier stages of a stage's rank have."""
        return {self.part[stage] for stage in range(at) if self.rank[stage] == self.rank[at]}

    def weights(self, local: RankProgram, at: int, weight_state: WeightStatePlan, folded: bool) -> list[Weight]:
        """The weights that a stage has to care for, in the order it uses them: no earlier stage of its rank does.

        Those of equal layers in a row are one, with how many there are, where they are `folded`.
        """
        part, earlier = self.part[at], self._earlier(at)
        if part in earlier:
            return []
        had = {key for other in earlier for key in self._common[other]}
        found: dict[Key, Weight] = {}
        kinds: dict[BlockKind, list[Weight]] = {}
        for run in self.row.runs[part] if folded else self._layer_by_layer(part):
            kind = kind_of(run)
            if kind not in kinds:
                kinds[kind] = [weight_state.on_axes(weight, local.sampled) for weight in local.weights(kind)]
            weights = kinds[kind]
            mine = [weight for weight in weights if weight.key[0] == run.block]
            for number, layers in enumerate(_equal_layers(run, alone=len(mine) < len(weights))):
                for weight in weights if number == 0 else mine:
                    key = key_of(weight, run.block, layers.first)
                    if key not in found and key not in had:
                        found[key] = weight._replace(key=key, layer=layers.layer, times=layers.times)
        return list(found.values())

    def _layer_by_layer(self, part: int) -> list[EqualLayers]:
        return [run for piece in self.row.parts[part] for run in runs((piece,))]

    # signatures

    @functools.cached_property
    def signatures(self) -> dict[StageSignature, list[int]]:
        """The stages of each shape."""
        found: dict[StageSignature, list[int]] = defaultdict(list)
        for at in range(self.count):
            found[self._signature(at)].append(at)
        return dict(found)

    @functools.cached_property
    def signature_runs(self) -> tuple[StageRuns, ...]:
        """The layers of each shape."""
        return tuple(StageRuns(self.graph, self.runs(same[0])) for same in self.signatures.values())

    @functools.cached_property
    def kinds(self) -> tuple[BlockKind, ...]:
        """The kinds of layers there are."""
        return tuple(dict.fromkeys(kind for shape in self.signatures for kind, *_ in shape.layers))

    @functools.cached_property
    def layers(self) -> tuple[int, ...]:
        """How many layers each shape has."""
        return tuple(own.layers for own in self.signature_runs)

    @functools.cached_property
    def stage_signatures(self) -> tuple[int, ...]:
        """The shape of each stage."""
        place = {at: number for number, same in enumerate(self.signatures.values()) for at in same}
        return tuple(place[at] for at in range(self.count))

    def _signature(self, at: int) -> StageSignature:
        before, after = self.links[at]
        part = self.part[at]
        earlier = self._earlier(at) if self.chunks > 1 else set[int]()
        return StageSignature(
            tuple(self._layers(run, self.lies[at]) for run in self.row.runs[part]),
            before < 0,
            after < 0,
            self._reads(self.receives(at)),
            self._reads(self.sends(at)),
            len(self._ranks_of[part]),
            tuple((key, len(self._holders[key])) for key in sorted(self._common[part])),
            frozenset(other for other in earlier if other == part or self._common[other] & self._common[part]),
            self.schedule.weight_versions(self.rank[at], self.ranks),
        )

    def _reads(self, part: int) -> tuple[tuple[int, int, bool], ...]:
        return tuple((*one.read, one.trained) for one in self.row.crossings[part]) if part >= 0 else ()

    def _layers(self, run: EqualLayers, lies: int) -> tuple[BlockKind, int, bool, bool]:
        last = run.first + run.times == self.graph.blocks[run.block].times
        return kind_of(run)._replace(lies=lies), run.times, run.first == 0, last


def _equal_layers(run: EqualLayers, alone: bool) -> Iterator[EqualLayers]:
    """The layers of a run, the first of them `alone` if it brings weights that all share."""
    if alone:
        yield run._replace(times=1)
        if run.times == 1:
            return
        run = run._replace(first=run.first + 1, times=run.times - 1, layer=f"after {run.layer}" if run.layer else "")
    yield run


@forgettable
@functools.lru_cache(maxsize=1024)
def pipeline_partition(
    graph: Graph, pipeline: Pipeline, rule: str, spares: Recomputation | None = None, paired: bool = False
) -> PipelinePartition:
    """Cut a model for a pipeline, where the plan does not say how by a trainer's rule.

    `spares` is a recomputation that leaves some layers of a stage as they are; `paired`: passes run in pairs.
    """
    return PipelinePartition(graph, pipeline, rule, spares, paired)
