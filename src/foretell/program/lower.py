"""From a plan to a program: spread the model over the axes, cut it into stages, write what each rank does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from foretell.model.fold import written_out
from foretell.model.graph import Graph
from foretell.model.layers import Piece, Run, by_layers, runs
from foretell.model.operators.optimizer import RULES, update
from foretell.plan.placement import PARTIAL, REPLICATED
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.precision import Format, Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.schedule import Schedule, find
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.trainer import Trainer
from foretell.program.action import Action, Allocate, Communicate, Copy, Free, Update
from foretell.program.body import Bodies, Body
from foretell.program.boundary import Border, cuts, messages
from foretell.program.exchange import Exchanges
from foretell.program.layout import Layout, layout
from foretell.program.mesh import mesh, stride
from foretell.program.program import Axis, Layer, Memory, Program, RankKind, Stage
from foretell.program.replay import Replay, Turn, replay
from foretell.program.spread import Conventions
from foretell.program.stages import stages
from foretell.program.transition import travel
from foretell.program.weights import Weight, weights
from foretell.units import product


def lower(setting: Setting) -> Program:
    """The program of a plan that fits (see `legality.refusals`)."""
    return _Lowering(setting).program()


@dataclass(frozen=True)
class Bytes:
    """Bytes of one weight in each of its forms."""

    weight: float  # at rest
    gathered: float  # in use, where it was gathered
    wire: float  # its gradient as it travels
    gradient: float  # its gradient at rest
    states: float  # master copy and the optimizer's states

    @classmethod
    def of(cls, form: Format, trainer: Trainer, optimizer: str) -> Bytes:
        """A trainer has its own figures for mixed 16-bit training; else the precision says."""
        count = RULES[optimizer].states
        if form.activation in ("bf16", "fp16") and form.master:
            s = trainer.storage
            states = s.master + count * s.state
            return cls(s.weight, s.gathered, trainer.gradients.wire, s.gradient, states)
        gathered = 2 if form.autocast else form.weight
        return cls(form.weight, gathered, form.gradient, form.accumulation, form.states(count))


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
        self.layout: Layout = layout(self.graph, space, _conventions(self.plan, self.trainer))
        self.recompute = self.plan.policy(Recompute)
        self.offload = self.plan.policy(Offload)
        self.bodies = Bodies(self.layout, self.recompute.again)
        self.bytes = Bytes.of(self.plan.policy(Precision).format, self.trainer, setting.job.optimizer)
        bucket = self.plan.policy(Bucket).size
        gradients = self.trainer.gradients
        data = product(axis.ranks for axis in space if axis.splitting.dim == "sample")
        self.exchanges = Exchanges(
            {axis.name: axis for axis in self.axes},
            self.bytes.gathered,
            self.bytes.wire,
            min(gradients.first_bucket, bucket) if bucket else gradients.first_bucket,
            bucket or max(gradients.bucket, gradients.bucket_rank * data),
            self.plan.policy(Compression),
            self.trainer.tensor.sums == "each",
        )

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
            axes=tuple(Axis(axis.name, axis.ranks, stride(self.axes, (axis.name,))) for axis in self.axes),
            stages=tuple(found),
            kinds=kinds,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        """Operators that every rank of an axis does all of, though the axis divides others like them."""
        for one in self.layout.spreads:
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

    def _holders(self) -> dict[tuple[int, int, int], set[int]]:
        """The pipeline ranks that hold each weight: several where stages share it."""
        ranks, chunks = self.pipeline.ranks, self.chunks
        found: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        for stage in range(ranks * chunks):
            for weight in self.weights[self._part(stage)]:
                found[weight.key].add(self.schedule.rank_of(stage, ranks, chunks))
        return found

    def _stage(
        self,
        at: int,
        parts: tuple[tuple[Piece, ...], ...],
        links: dict[int, tuple[int, int]],
        holders: dict[tuple[int, int, int], set[int]],
    ) -> Stage:
        part = self._part(at)
        own = self.weights[part]
        units = self._units(own)
        before, after = links[at]
        receives = self.cuts[part] if self._apart(before, at) else ()
        sends = self.cuts[self._part(after)] if self._apart(at, after) else ()
        root = units.get("", [])
        twice = root if self.trainer.storage.reshard_root else []  # let go between the passes
        turns = list(self._turns(parts[part], units))
        found = replay(self.graph, turns, pipelined=self.pipeline.ranks > 1)
        border = Border(found) if self.pipeline.ranks > 1 else Border()
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
                [*messages("receive", receives, "activations"), *border.arrive, *self._gathers(root)],
            ),
            leave=_body(
                "leave", "forward", [*messages("send", sends, "activations"), *border.sent, *self._lets_go(twice)]
            ),
            enter_back=_body(
                "enter",
                "backward",
                [*messages("receive", sends, "gradients"), *border.come_back, *self._gathers(twice)],
            ),
            leave_back=_body(
                "leave",
                "backward",
                [*self._reduces(root, own), *messages("send", receives, "gradients"), *border.given_back],
            ),
            finish=_body("finish", "step", list(self._finish(own, holders))),
            memory=self._memory(own, found, self.exchanges.gathered_bytes(root)),
        )

    def _apart(self, one: int, other: int) -> bool:
        """Whether two stages that follow each other lie on different ranks."""
        ranks, chunks = self.pipeline.ranks, self.chunks
        if min(one, other) < 0:
            return False
        return self.schedule.rank_of(one, ranks, chunks) != self.schedule.rank_of(other, ranks, chunks)

    def _units(self, own: tuple[Weight, ...]) -> dict[str, list[Weight]]:
        """The weights that are gathered together for use: of each layer, and of all that is in none."""
        if self.trainer.storage.unit == "model":
            own = tuple(weight._replace(layer="") for weight in own)
        found: dict[str, list[Weight]] = {}
        for weight in own:
            if weight.shared and self.exchanges.storage(weight).weights:
                found.setdefault(weight.layer, []).append(weight)
        return found

    def _turns(self, pieces: Sequence[Piece], units: dict[str, list[Weight]]) -> Iterator[Turn]:
        seen: set[str] = set()
        for run in runs(tuple(pieces)):
            name = _name(self.graph, run)
            forward = self.bodies.forward(run.block, run.start, run.stop, name)
            backward = self.bodies.backward(run.block, run.start, run.stop, name)
            unit = units.get(run.layer, []) if run.layer and run.layer not in seen else []
            seen.add(run.layer)
            if unit:
                forward, backward = self._with_gathers(forward, backward, unit)
            yield Turn(run, *self._offloaded(forward, backward))

    def _with_gathers(self, forward: Body, backward: Body, unit: list[Weight]) -> tuple[Body, Body]:
        """A layer whose weights are gathered before each use and let go after it."""
        keeps = self.trainer.storage
        reshard = keeps.reshard_pipeline if self.pipeline.ranks > 1 else keeps.reshard_forward
        size = self.exchanges.gathered_bytes(unit)
        name = f"{forward.name} weights"
        gather: list[Action] = [Allocate(name, size, "gathered"), *self.exchanges.gather(unit, forward.name)]
        free: list[Action] = [Free(name, size)]
        forward_actions = [*gather, *forward.actions, *(free if reshard else ())]
        backward_actions = [*(gather if reshard else ()), *backward.actions, *free]
        backward_actions += list(self.exchanges.reduce(unit, forward.name))
        return (
            Body(forward.name, "forward", tuple(forward_actions)),
            Body(backward.name, "backward", tuple(backward_actions)),
        )

    def _gathers(self, root: list[Weight]) -> list[Action]:
        """What is in no layer is gathered at the start of a pass."""
        if not root:
            return []
        size = self.exchanges.gathered_bytes(root)
        return [Allocate("root weights", size, "gathered"), *self.exchanges.gather(root, "root")]

    def _lets_go(self, root: list[Weight]) -> list[Action]:
        return [Free("root weights", self.exchanges.gathered_bytes(root))] if root else []

    def _reduces(self, root: list[Weight], own: tuple[Weight, ...]) -> list[Action]:
        """The sums of gradients after each micro-batch's backward pass."""
        actions: list[Action] = []
        if root:
            actions += [*self._lets_go(root), *self.exchanges.reduce(root, "root")]
        each = self._summed_each()
        actions += list(self.exchanges.in_buckets([weight for weight in own if self._stored(weight) in each]))
        return actions

    def _stored(self, weight: Weight) -> str:
        return self.exchanges.storage(weight).name

    def _summed_each(self) -> tuple[str, ...]:
        """Storages short of zero3 whose gradients are summed in each micro-batch."""
        gradients = self.trainer.gradients
        words = gradients.each_pipeline if self.pipeline.ranks > 1 else gradients.each
        return tuple(word for word in words if word != "zero3")

    def _finish(self, own: tuple[Weight, ...], holders: dict[tuple[int, int, int], set[int]]) -> Iterator[Action]:
        """Sum what is not summed yet, update, and bring new weights to those who do not have them."""
        each = (*self._summed_each(), "zero3")
        yield from self.exchanges.in_buckets([weight for weight in own if self._stored(weight) not in each])
        yield from self._tied(own, holders)
        push, pull = self.exchanges.served(own)
        yield from push
        held = sum(self.exchanges.held(weight) for weight in own if weight.trainable)
        host = self.offload.optimizer
        if host:
            yield Copy("gradients", True, held * self.bytes.wire)
        rule = update(self.setting.job.optimizer)
        widths = {"w": self.bytes.weight, "g": self.bytes.gradient, "s": 4, "y": self.bytes.weight}
        yield Update(self.setting.job.optimizer, held, rule.forward({"parameter": held}, widths))
        if host:
            yield Copy("weights", False, held * self.bytes.weight)
        yield from pull
        apart = [weight for weight in own if weight.shared and not self.exchanges.storage(weight).weights]
        yield from self.exchanges.gather(apart, "after the update")
        yield from self.exchanges.averaged(own)

    def _tied(self, own: tuple[Weight, ...], holders: dict[tuple[int, int, int], set[int]]) -> Iterator[Communicate]:
        """Weights that several stages use are summed over the ranks that hold them."""
        together: dict[int, list[Weight]] = defaultdict(list)
        for weight in own:
            if weight.trainable:
                together[len(holders[weight.key])].append(weight)
        for others, shared in together.items():
            travels = travel(PARTIAL, REPLICATED, others)
            if travels is not None:
                payload = sum(self.exchanges.held(weight) for weight in shared) * self.bytes.wire
                name = shared[0].name if len(shared) == 1 else f"{len(shared)} weights"
                yield Communicate(travels.kind, ("pp",), others, payload, "weight gradients", name)

    def _memory(self, own: tuple[Weight, ...], found: Replay, root: float) -> Memory:
        """What lies there all the time: shares where the plan says so."""
        resting = gradients = 0.0
        held = 0
        for weight in own:
            part = self.exchanges.held(weight)
            storage = self.exchanges.storage(weight)
            resting += (part if storage.weights else weight.elements) * self.bytes.weight
            if weight.trainable:
                shares = storage.gradients or (storage.states and self.trainer.storage.zero1_gradients)
                gradients += (part if shares else weight.elements) * self.bytes.gradient
                held += part
        states = 0.0 if self.offload.optimizer else held * self.bytes.states
        total = sum(weight.elements for weight in own)
        peaks = (found.forward_peak + root, found.backward_peak + root)
        return Memory(resting, gradients, states, total, held, found.kept, *peaks)

    def _offloaded(self, forward: Body, backward: Body) -> tuple[Body, Body]:
        """Activations that wait in host memory between the two passes."""
        if not self.offload.activations:
            return forward, backward
        begun = sum(action.bytes for action in forward.actions if isinstance(action, Allocate))
        ended = sum(action.bytes for action in forward.actions if isinstance(action, Free))
        kept = max(0, begun - ended)
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
