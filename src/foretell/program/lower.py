"""From a plan to a program: spread the model over the axes, cut it into stages, write what each rank does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from foretell.model.graph import Graph
from foretell.model.layers import Run
from foretell.plan.setting import Setting
from foretell.program.action import Action, Communicate
from foretell.program.body import Body
from foretell.program.boundary import Border, Cut, messages
from foretell.program.exchange import BUCKET
from foretell.program.local import kind_of
from foretell.program.outline import Outline
from foretell.program.program import Layer, Memory, Program, RankKind, Stage
from foretell.program.upkeep import Care
from foretell.program.weights import Weight
from foretell.units import product


def lower(setting: Setting, borders: bool = True) -> Program:
    """The program of a plan that fits (see `legality.refusals`).

    Without `borders`, memory of what crosses between stages has no events, for those who do not follow memory.
    """
    return written(Outline(setting), borders)


def written(outline: Outline, borders: bool = True) -> Program:
    """An outline with every stage and every slot written out."""
    ranks, chunks, count = outline.ranks, outline.chunks, outline.plan.microbatches
    order = outline.schedule.order(ranks, count, chunks)
    replicas = product(axis.ranks for axis in outline.axes if axis.name != "pp")
    return Program(
        model=outline.graph.name,
        plan=str(outline.plan),
        trainer=outline.trainer.name,
        batch=outline.setting.job.batch,
        microbatches=count,
        axes=outline.mesh,
        stages=tuple(_Writer(outline, borders).stage(at) for at in range(outline.cutting.count)),
        kinds=tuple(
            RankKind(place, replicas, outline.schedule.stages_of(place, ranks, chunks), order[place])
            for place in range(ranks)
        ),
        notes=notes(outline),
    )


def notes(outline: Outline) -> tuple[str, ...]:
    """What a person should know about how the plan is carried out."""
    return tuple(_notes(outline))


def _notes(outline: Outline) -> Iterator[str]:
    """Operators that every rank of an axis does all of, though the axis divides others like them."""
    for one in outline.layout.spreads:
        if not outline.divides(one.axis.name):
            yield f"{one.axis.name}{one.axis.ranks} divides nothing: every one of its ranks does all the work"
            continue
        for path, why in one.whole:
            yield f"{path} runs whole on every rank of {one.axis.name}: {why}"
    yield from outline.setting.graph.warnings


class _Writer:
    """Writes the stages of an outline."""

    def __init__(self, outline: Outline, borders: bool) -> None:
        self.outline, self.upkeep, self.graph, self.borders = outline, outline.upkeep, outline.graph, borders

    def stage(self, at: int) -> Stage:
        outline, upkeep = self.outline, self.upkeep
        own = outline.own(at)
        care = upkeep.care(own, outline.holders(at, own))
        cutting = outline.cutting
        before, after = cutting.links[at]
        receives, sends = self._cuts(cutting.receives(at)), self._cuts(cutting.sends(at))
        border = self._border(at)
        back = [*_numbered(care.reduces), *upkeep.sends_out(care.stays), *upkeep.goes("root", care.stays)]
        back += [*messages("send", receives, "gradients"), *border.given_back]
        finish = _numbered(care.finish)
        if not outline.schedule.flushes:  # weights change after each micro-batch
            back, finish = [*back, *finish], ()
        return Stage(
            part=cutting.part[at],
            before=before,
            after=after,
            layers=tuple(self._layers(cutting.runs(at), care)),
            enter=_body(
                "enter",
                "forward",
                [
                    *messages("receive", receives, "activations"),
                    *border.arrive,
                    *upkeep.comes("root", care.stays),
                    *upkeep.gathers(care.root),
                ],
            ),
            leave=_body(
                "leave", "forward", [*messages("send", sends, "activations"), *border.sent, *upkeep.lets_go(care.twice)]
            ),
            enter_back=_body(
                "enter",
                "backward",
                [*messages("receive", sends, "gradients"), *border.come_back, *upkeep.gathers(care.twice)],
            ),
            leave_back=_body("leave", "backward", back),
            finish=_body("finish", "step", finish),
            memory=stage_memory(outline, at, own, care),
        )

    def _border(self, at: int) -> Border:
        """The memory of what crosses into a stage and out of it."""
        cutting = self.outline.cutting
        before, after = cutting.links[at]
        came = self._cuts(cutting.part[at] if before >= 0 else -1)
        went = self._cuts(cutting.part[after] if after >= 0 else -1)
        if not (self.borders and (came or went)):
            return Border(self.graph, came, went, {}, {})
        stage = self.outline.local.trace(cutting.runs(at), pipelined=self.outline.ranks > 1)
        missing, left = stage.bytes(stage.trace.missing), stage.bytes(stage.trace.left)
        return Border(self.graph, came, went, missing, left)

    def _cuts(self, part: int) -> tuple[Cut, ...]:
        return self.outline.cuts[part] if part >= 0 else ()

    def _layers(self, own: Sequence[Run], care: Care) -> Iterator[Layer]:
        seen: set[str] = set()
        for run in own:
            name = layer_names(self.graph, run)
            forward, backward = self.outline.local.actions(kind_of(run))
            bodies = Body(name, "forward", forward), Body(name, "backward", backward)
            first = run.layer and run.layer not in seen
            seen.add(run.layer)
            if first and run.layer in care.units:
                bodies = self.upkeep.with_gathers(*bodies, care.units[run.layer])
            if first and run.layer in care.host:
                bodies = self.upkeep.with_copies(*bodies, care.host[run.layer])
            yield Layer(name, run.times, *bodies, run)


def stage_memory(outline: Outline, at: int, own: list[Weight], care: Care) -> Memory:
    """Bytes of a stage."""
    versions = outline.schedule.weight_versions(outline.cutting.rank[at], outline.ranks)
    resting = outline.upkeep.resting(own, versions)
    peaks = outline.peaks(at, care.gathered_for(outline.cutting.runs(at)))
    return Memory(
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


def layer_names(graph: Graph, run: Run) -> str:
    """The layers that a run stands for: 'layers.0..3'."""
    if not run.layer:
        paths = [node.path or "(root)" for node in graph.blocks[run.block].nodes[run.start : run.stop]]
        return paths[0] if paths[0] == paths[-1] else f"{paths[0]} to {paths[-1]}"
    if run.times == 1:
        return run.layer
    stem, _, number = run.layer.rpartition(".")
    last = int(number) + (run.times - 1) * max(1, graph.blocks[run.block].stride)
    return f"{stem}.{number}..{last}".lstrip(".")
