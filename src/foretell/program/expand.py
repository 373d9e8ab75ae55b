"""A program written out: every stage with its bodies, and every rank with its slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from foretell.model.graph import Graph
from foretell.model.layers import EqualLayers
from foretell.plan.axis_names import AxisName
from foretell.plan.dispatch import dispatch
from foretell.program.action import Action, Communicate, Phase, TrafficKind
from foretell.program.body import Body
from foretell.program.boundary import Border, CutTensor, messages
from foretell.program.exchange import BUCKET
from foretell.program.expanded import ExpandedProgram, Layer, RankKind, Stage, StageMemory
from foretell.program.program import Program
from foretell.program.rank_program import kind_of
from foretell.program.stage_weights import StageWeights, UnitBytes, beside
from foretell.program.weights import Weight
from foretell.units import product, show_bytes


def expand(program: Program, borders: bool = True) -> ExpandedProgram:
    """A program with every stage and every slot written out.

    Without `borders`, memory of what crosses between stages has no events, for those who do not follow memory.
    """
    ranks, chunks, count = program.ranks, program.chunks, program.plan.microbatches
    order = program.schedule.order(ranks, count, chunks)
    replicas = product(axis.ranks for axis in program.axes if axis.name != AxisName.PP)
    return ExpandedProgram(
        model=program.graph.name,
        plan=str(program.plan),
        trainer=program.trainer.name,
        batch=program.setting.job.batch,
        microbatches=count,
        axes=program.mesh,
        stages=tuple(_StageWriter(program, borders).stage(at) for at in range(program.partition.count)),
        kinds=tuple(
            RankKind(place, replicas, program.schedule.stages_of(place, ranks, chunks), order[place])
            for place in range(ranks)
        ),
        notes=notes(program),
    )


def notes(program: Program) -> tuple[str, ...]:
    """What a person should know about how the plan is carried out."""
    return tuple(_notes(program))


def _notes(program: Program) -> Iterator[str]:
    """Operators that every rank of an axis does all of, though the axis divides others like them."""
    for one in program.layout.spreads:
        if not program.divides(one.axis.name):
            yield f"{one.axis.name}{one.axis.ranks} shards nothing: each of its ranks does all the work"
            continue
        for path, why in one.whole:
            yield f"{path} is replicated on every rank of {one.axis.name}: {why}"
    yield from _padded_experts(program)
    yield from _gathered_tokens(program)
    yield from program.setting.graph.warnings


def _padded_experts(program: Program) -> Iterator[str]:
    """Experts that are not cut, of which there are fewer than ranks that share them."""
    for at in range(program.partition.count):
        for weight in program.own(at):
            ranks = program.weight_state.exchanges.ranks(weight.shared) if weight.shared else 1
            if weight.together > 1 and weight.stack % ranks:
                whole = weight.gathered(ranks) // (weight.elements // weight.stack)
                yield (
                    f"{weight.stack} experts in shares of {ranks} ranks: none is cut, and each message of their "
                    f"weights and gradients has room for {whole}; `shardN` over {weight.stack} ranks or `epN` "
                    "does without"
                )
                return


def _gathered_tokens(program: Program) -> Iterator[str]:
    """Tokens of all ranks that lie on each of them, where they go everywhere."""
    rows = [(one, one.rows) for found in program.layout.travels.values() for one in found if one.rows]
    sizes = {one.payload / to.reach.chosen * one.ranks for one, to in rows if not dispatch(to.dispatch).routed}
    if sizes:
        yield (
            f"tokens of all ranks that divide the experts lie on each of them while rows are sorted: memory does not "
            f"count these {show_bytes(max(map(float, sizes)))}"
        )


class _StageWriter:
    """Writes the stages of an program."""

    def __init__(self, program: Program, borders: bool) -> None:
        self.program, self.weight_state, self.graph, self.borders = (
            program,
            program.weight_state,
            program.graph,
            borders,
        )

    def stage(self, at: int) -> Stage:
        program, weight_state = self.program, self.weight_state
        own = program.own(at)
        care = weight_state.care(own, program.holders(at, own))
        partition = program.partition
        before, after = partition.links[at]
        receives, sends = self._cuts(partition.receives(at)), self._cuts(partition.sends(at))
        border = self._border(at)
        back = [*_numbered(care.reduces), *weight_state.sends_out(care.stays), *weight_state.goes("root", care.stays)]
        back += [*messages("send", receives, TrafficKind.GRADIENTS), *border.given_back]
        finish = _numbered(care.finish)
        if not program.schedule.flushes:  # weights change after each micro-batch
            back, finish = [*back, *finish], ()
        return Stage(
            part=partition.part[at],
            before=before,
            after=after,
            layers=tuple(self._layers(partition.runs(at), care)),
            enter=_body(
                "enter",
                "forward",
                [
                    *messages("receive", receives, TrafficKind.ACTIVATIONS),
                    *border.arrive,
                    *weight_state.comes("root", care.stays),
                    *weight_state.gathers(care.root),
                ],
            ),
            leave=_body(
                "leave",
                "forward",
                [*messages("send", sends, TrafficKind.ACTIVATIONS), *border.sent, *weight_state.lets_go(care.twice)],
            ),
            enter_back=_body(
                "enter",
                "backward",
                [
                    *messages("receive", sends, TrafficKind.GRADIENTS),
                    *border.come_back,
                    *weight_state.gathers(care.twice),
                ],
            ),
            leave_back=_body("leave", "backward", back),
            finish=_body("finish", "step", finish),
            memory=stage_memory(program, at, own, care),
        )

    def _border(self, at: int) -> Border:
        """The memory of what crosses into a stage and out of it."""
        partition = self.program.partition
        before, after = partition.links[at]
        came = self._cuts(partition.part[at] if before >= 0 else -1)
        went = self._cuts(partition.part[after] if after >= 0 else -1)
        if not (self.borders and (came or went)):
            return Border(self.graph, came, went, {}, {})
        stage = self.program.rank_program.trace(partition.runs(at), pipelined=self.program.ranks > 1)
        missing, left = stage.bytes(stage.trace.missing), stage.bytes(stage.trace.left)
        return Border(self.graph, came, went, missing, left)

    def _cuts(self, part: int) -> tuple[CutTensor, ...]:
        return self.program.cuts[part] if part >= 0 else ()

    def _layers(self, own: Sequence[EqualLayers], care: StageWeights) -> Iterator[Layer]:
        seen: set[str] = set()
        sizes = care.gathered_for(own) or (UnitBytes(),) * len(own)
        for run, size in zip(own, sizes, strict=True):
            name = layer_names(self.graph, run)
            forward, backward = self.program.rank_program.actions(kind_of(run))
            bodies = Body(name, Phase.FORWARD, forward), Body(name, Phase.BACKWARD, backward)
            first = run.layer and run.layer not in seen
            seen.add(run.layer)
            if first and run.layer in care.units:
                bodies = self.weight_state.with_gathers(*bodies, care.units[run.layer], size)
            elif not run.layer:
                bodies = _beside(bodies[0], size), _beside(bodies[1], size)
            if first and run.layer in care.host:
                bodies = self.weight_state.with_copies(*bodies, care.host[run.layer])
            yield Layer(name, run.times, *bodies, run)


def _beside(body: Body, size: UnitBytes) -> Body:
    """A pass of what is in no layer, with the messages of layers that are there meanwhile."""
    gather, sums = (size.ahead, 0.0) if body.phase == Phase.FORWARD else (size.next, size.sums)
    return Body(body.name, body.phase, tuple(beside(body.actions, f"{body.name} weights", gather, sums)))


def stage_memory(program: Program, at: int, own: list[Weight], care: StageWeights) -> StageMemory:
    """Bytes of a stage."""
    versions = program.schedule.weight_versions(program.partition.rank[at], program.ranks)
    resting = program.weight_state.resting(own, versions)
    peaks = program.peaks(at, care.gathered_for(program.partition.runs(at)))
    return StageMemory(
        resting.weights,
        resting.gradients,
        resting.states,
        resting.parameters,
        resting.trained,
        resting.updated,
        peaks.kept,
        peaks.forward_peak + care.root_bytes,
        peaks.backward_peak + care.root_bytes,
    )


def _numbered(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Buckets with their numbers, for who reads them."""
    count: Counter[tuple[str, tuple[str, ...]]] = Counter()
    found: list[Action] = []
    for action in actions:
        if isinstance(action, Communicate) and action.path == BUCKET:
            action = msgspec.structs.replace(action, path=f"{BUCKET} {count[action.kind, action.axes]}")
            count[action.kind, action.axes] += 1
        found.append(action)
    return tuple(found)


def _body(name: str, phase: str, actions: Sequence[Action]) -> Body:
    return Body(name, phase, tuple(actions))


def layer_names(graph: Graph, run: EqualLayers) -> str:
    """The layers that a run stands for: 'layers.0..3'."""
    if not run.layer:
        paths = [node.path or "(root)" for node in graph.blocks[run.block].nodes[run.start : run.stop]]
        return paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"
    if run.times == 1:
        return run.layer
    stem, _, number = run.layer.rpartition(".")
    last = int(number) + (run.times - 1) * max(1, graph.blocks[run.block].stride)
    return f"{stem}.{number}..{last}".lstrip(".")
