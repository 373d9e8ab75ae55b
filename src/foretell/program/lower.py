"""From a plan to a program: spread the model over the axes, cut it into stages, write what each rank does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
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
from foretell.program.action import Action, Allocate, Copy, Free
from foretell.program.body import Bodies, Body
from foretell.program.boundary import Border, cuts, messages
from foretell.program.layout import Layout, layout
from foretell.program.mesh import mesh, stride
from foretell.program.program import Axis, Layer, Memory, Program, RankKind, Stage
from foretell.program.replay import Replay, Turn, replay
from foretell.program.spread import Conventions
from foretell.program.stages import stages
from foretell.program.upkeep import Upkeep
from foretell.program.weights import Weight, weights
from foretell.units import ceil_div, product


class Passes(NamedTuple):
    """Bytes of one micro-batch on one stage: between its passes, and at most in each."""

    kept: float
    forward_peak: float
    backward_peak: float


def lower(setting: Setting) -> Program:
    """The program of a plan that fits (see `legality.refusals`)."""
    return _Lowering(setting).program()


class _Lowering:
    """The parts of a plan as lowering needs them."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.plan, self.trainer = setting, setting.plan, setting.trainer
        self.axes = mesh(self.plan)
        self.graph = as_lowered(setting.graph, self.plan)
        self.pipeline = self.plan.axis(Pipeline) or Pipeline(ranks=1)
        self.schedule: Schedule = find(self.pipeline.schedule if self.pipeline.ranks > 1 else "1f1b")
        self.chunks = self.pipeline.chunks or self.schedule.least_chunks
        if self.pipeline.ranks == 1:
            self.chunks = 1
        space = tuple(axis for axis in self.axes if axis.name != "pp")
        self.layout: Layout = layout(self.graph, space, _conventions(self.plan, self.trainer), self._padding(space))
        self.recompute = self.plan.policy(Recompute)
        self.offload = self.plan.policy(Offload)
        self.bodies = Bodies(self.layout, self.recompute.again)
        self.upkeep = Upkeep(setting, self.axes)

    def _padding(self, space: tuple[MeshAxis, ...]) -> dict[str, int]:
        """Dims that the trainer pads, and to a multiple of what: the vocabulary, for the tensor axis."""
        multiple = self.trainer.tensor.vocabulary_multiple
        return {"vocab": multiple * product(a.ranks for a in space if a.splitting.flows)} if multiple else {}

    def program(self) -> Program:
        ranks, chunks, count = self.pipeline.ranks, self.chunks, self.plan.microbatches
        parts = stages(self.graph, self.schedule.parts(ranks, chunks), self.pipeline.split, self.trainer.pipeline.split)
        links = self._links(count)
        self.weights = tuple(weights(self.layout, part) for part in parts)
        self.cuts = cuts(self.layout, parts)
        holders = self._holders()
        found = [self._stage(at, parts, links, holders) for at in range(ranks * chunks)]
        order = self.schedule.order(ranks, count, chunks)
        replicas = product(axis.ranks for axis in self.layout.axes)
        kinds = tuple(
            RankKind(place, replicas, self.schedule.stages_of(place, ranks, chunks), order[place])
            for place in range(ranks)
        )
        return Program(
            model=self.graph.name,
            plan=str(self.plan),
            trainer=self.trainer.name,
            batch=self.setting.job.batch,
            microbatches=count,
            axes=tuple(self._axis(axis) for axis in self.axes),
            stages=tuple(found),
            kinds=kinds,
            notes=tuple(self._notes()),
        )

    def _axis(self, axis: MeshAxis) -> Axis:
        exchange = axis.exchange
        apart = stride(self.axes, (axis.name,))
        return Axis(axis.name, axis.ranks, apart, exchange.waits, exchange.staleness, self._divides(axis.name))

    def _divides(self, name: str) -> bool:
        """Whether an axis divides any operator; the pipeline always does."""
        return name == "pp" or any(any(one.places.values()) for one in self.layout.spreads if one.axis.name == name)

    def _notes(self) -> Iterator[str]:
        """Operators that every rank of an axis does all of, though the axis divides others like them."""
        for one in self.layout.spreads:
            if not self._divides(one.axis.name):
                yield f"{one.axis.name}{one.axis.ranks} divides nothing: every one of its ranks does all the work"
                continue
            for path, why in one.whole:
                yield f"{path} runs whole on every rank of {one.axis.name}: {why}"
        yield from self.setting.graph.warnings

    # stages

    def _links(self, count: int) -> dict[int, tuple[int, int]]:
        """For each stage the one before and the one after it; -1 where there is none."""
        ranks, chunks = self.pipeline.ranks, self.chunks
        found = {at: [-1, -1] for at in range(ranks * chunks)}
        for microbatch in range(count):
            for one, other in pairwise(self.schedule.path(microbatch, ranks, count, chunks)):
                found[one][1], found[other][0] = other, one
        return {at: (before, after) for at, (before, after) in found.items()}

    def _part(self, stage: int) -> int:
        return self.schedule.part_of(stage, self.pipeline.ranks, self.chunks)

    def _holders(self) -> dict[tuple[int, int, int], frozenset[int]]:
        """The pipeline ranks that have each weight: several where stages share it."""
        ranks, chunks = self.pipeline.ranks, self.chunks
        found: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        for stage in range(ranks * chunks):
            for weight in self.weights[self._part(stage)]:
                found[weight.key].add(self.schedule.rank_of(stage, ranks, chunks))
        return {key: frozenset(held) for key, held in found.items()}

    def _own(self, at: int) -> list[Weight]:
        """The weights that a stage has to care for: those that no earlier stage of its rank has already."""
        ranks, chunks = self.pipeline.ranks, self.chunks
        mine = self.schedule.stages_of(self.schedule.rank_of(at, ranks, chunks), ranks, chunks)
        before = {weight.key for stage in mine if stage < at for weight in self.weights[self._part(stage)]}
        return [weight for weight in self.weights[self._part(at)] if weight.key not in before]

    def _stage(
        self,
        at: int,
        parts: tuple[tuple[Piece, ...], ...],
        links: dict[int, tuple[int, int]],
        holders: dict[tuple[int, int, int], frozenset[int]],
    ) -> Stage:
        part, own, upkeep = self._part(at), self._own(at), self.upkeep
        units = upkeep.units(own)
        before, after = links[at]
        receives = self.cuts[part] if self._apart(before, at) else ()
        sends = self.cuts[self._part(after)] if self._apart(at, after) else ()
        root = units.get("", []) if upkeep.gathers_each else []
        twice = root if self.trainer.storage.reshard_root else []  # let go between the passes
        turns = list(self._turns(parts[part], units if upkeep.gathers_each else {}))
        found = replay(self.graph, turns, pipelined=self.pipeline.ranks > 1)
        border = Border(
            self.graph,
            found,
            self.cuts[part] if before >= 0 else (),
            self.cuts[self._part(after)] if after >= 0 else (),
        )
        finish = list(upkeep.finish(own, units, holders))
        back = [*upkeep.reduces(root, own), *messages("send", receives, "gradients"), *border.given_back]
        if not self.schedule.flushes:  # weights change after each micro-batch
            back, finish = [*back, *finish], []
        return Stage(
            part=part,
            before=before,
            after=after,
            layers=tuple(
                Layer(turn.forward.name, turn.run.times, turn.forward, turn.backward, turn.run) for turn in turns
            ),
            enter=_body(
                "enter",
                "forward",
                [*messages("receive", receives, "activations"), *border.arrive, *upkeep.gathers(root)],
            ),
            leave=_body(
                "leave", "forward", [*messages("send", sends, "activations"), *border.sent, *upkeep.lets_go(twice)]
            ),
            enter_back=_body(
                "enter",
                "backward",
                [*messages("receive", sends, "gradients"), *border.come_back, *upkeep.gathers(twice)],
            ),
            leave_back=_body("leave", "backward", back),
            finish=_body("finish", "step", finish),
            memory=self._memory(at, own, parts[part], found, upkeep.exchanges.gathered_bytes(root)),
        )

    def _memory(self, at: int, own: list[Weight], pieces: Sequence[Piece], found: Replay, root: float) -> Memory:
        ranks = self.pipeline.ranks
        versions = self.schedule.weight_versions(self.schedule.rank_of(at, ranks, self.chunks), ranks)
        resting = self.upkeep.resting(own, versions)
        passes = self._passes(pieces, found)
        return Memory(
            resting.weights,
            resting.gradients,
            resting.states,
            resting.parameters,
            resting.updated,
            passes.kept,
            passes.forward_peak + root,
            passes.backward_peak + root,
        )

    def _passes(self, pieces: Sequence[Piece], found: Replay) -> Passes:
        """What a micro-batch holds, where several layers run again together or activations wait on the host."""
        layers = len({piece.layer for piece in pieces if piece.layer})
        passes = Passes(found.kept, found.forward_peak, found.backward_peak)
        if not layers:
            return passes
        if self.recompute.segment(layers) > 1:
            passes = self._segmented(pieces, passes, layers)
        if self.offload.activations:  # two layers at a time: one at work, one on its way
            waiting = min(passes.kept, 2 * passes.kept / layers)
            gone = passes.kept - waiting
            passes = Passes(waiting, passes.forward_peak - gone, passes.backward_peak - gone)
        return passes

    def _segmented(self, pieces: Sequence[Piece], passes: Passes, layers: int) -> Passes:
        """Only the input of each segment is kept; its layers run again together and keep all for their backward."""
        plain = Bodies(self.layout)
        turns = [
            Turn(
                run,
                plain.forward(run.block, run.start, run.stop, ""),
                plain.backward(run.block, run.start, run.stop, ""),
            )
            for run in runs(tuple(pieces))
        ]
        whole = replay(self.graph, turns, pipelined=True).kept
        ends = replay(self.graph, [turn for turn in turns if not turn.run.layer], pipelined=True).kept
        inputs = max(0.0, passes.kept - ends) / layers
        each = max(0.0, whole - ends) / layers
        size = self.recompute.segment(layers)
        kept = ends + ceil_div(layers, size) * inputs
        gone = passes.kept - kept
        return Passes(kept, passes.forward_peak - gone, passes.backward_peak - gone + (size - 1) * each)

    def _apart(self, one: int, other: int) -> bool:
        """Whether two stages that follow each other lie on different ranks."""
        ranks, chunks = self.pipeline.ranks, self.chunks
        if min(one, other) < 0:
            return False
        return self.schedule.rank_of(one, ranks, chunks) != self.schedule.rank_of(other, ranks, chunks)

    def _turns(self, pieces: Sequence[Piece], units: dict[str, list[Weight]]) -> Iterator[Turn]:
        seen: set[str] = set()
        for run in runs(tuple(pieces)):
            name = _name(self.graph, run)
            forward = self.bodies.forward(run.block, run.start, run.stop, name)
            backward = self.bodies.backward(run.block, run.start, run.stop, name)
            unit = units.get(run.layer, []) if run.layer and run.layer not in seen else []
            seen.add(run.layer)
            if unit:
                forward, backward = self.upkeep.with_gathers(forward, backward, unit)
            yield Turn(run, *self._offloaded(forward, backward))

    def _offloaded(self, forward: Body, backward: Body) -> tuple[Body, Body]:
        """Activations that wait in host memory between the two passes."""
        if not self.offload.activations:
            return forward, backward
        begun = {a.name: a.bytes for a in forward.actions if isinstance(a, Allocate) and a.kind == "activation"}
        ended = {a.name for a in forward.actions if isinstance(a, Free) and a.when == "every"}
        kept = sum(size for name, size in begun.items() if name not in ended)
        out, back = Copy("activations", True, kept), Copy("activations", False, kept)
        return (
            Body(forward.name, "forward", (*forward.actions, out)),
            Body(backward.name, "backward", (back, *backward.actions)),
        )


def _body(name: str, phase: str, actions: Sequence[Action]) -> Body:
    return Body(name, phase, tuple(actions))


def _name(graph: Graph, run: Run) -> str:
    """The layers that a run stands for: 'layers.0..3'."""
    if not run.layer:
        paths = [node.path or "(root)" for node in graph.blocks[run.block].nodes[run.start : run.stop]]
        return paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"
    if run.times == 1:
        return run.layer
    stem, _, number = run.layer.rpartition(".")
    last = int(number) + (run.times - 1) * max(1, graph.blocks[run.block].stride)
    return f"{stem}.{number}..{last}".lstrip(".")


def _conventions(plan: Plan, trainer: Trainer) -> Conventions:
    return Conventions(
        each_consumer=trainer.tensor.reduce == "consumer",
        gather_again=trainer.tensor.regather,
        synchronised=plan.policy(BatchNorm).synchronised,
        gathers_logits=trainer.tensor.loss == "gathered",
        whole_bias=trainer.tensor.row_bias == "whole",
    )


def as_lowered(graph: Graph, plan: Plan) -> Graph:
    """The model as a program refers to it: a block for each layer, or for equal ones.

    Without repetitions where a part of it may begin and end anywhere.
    """
    if any(axis.splitting.only for axis in mesh(plan)):
        graph = msgspec.structs.replace(graph, blocks=written_out(graph.blocks))
    return by_layers(graph)
