"""What there is to do in every slot of a program, with its prices, for the simulation to play.

Seconds are those of the engine's segments (`timeline.segments`), and of the messages behind them: the host, the soft
maximum, when buckets leave and what a processor's thread does beside are rules of the prices, not of the simulation.
Pieces say what a segment is made of, for those who look at a trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import groupby
from typing import NamedTuple

from foretell.cost.kernels import chains, kernel_seconds
from foretell.cost.price import PricedProgram
from foretell.cost.weight_traffic import WeightPrices
from foretell.plan.axis_names import AxisName
from foretell.plan.schedule import SLOT_KINDS, Block
from foretell.program.action import Action, Communicate, Compute, Copy, TrafficKind, Update
from foretell.program.body import Body
from foretell.program.exchange import BUCKET
from foretell.program.expanded import ExpandedProgram, RankKind, Stage, belongs
from foretell.program.rank_program import kind_of
from foretell.timeline.engine import kernels
from foretell.timeline.plan_table import PlanTable
from foretell.timeline.segments import DEVICE, HOST, SEGMENT

WEIGHTS = (TrafficKind.WEIGHTS, TrafficKind.WEIGHT_GRADIENTS)
"""What travels because of weights."""


ACCUMULATION = "sums of gradients"
COPIES = "copies of weights in shares"
"""What adding gradients to those of other micro-batches is called."""

PHASE = {"F": "forward", "B": "backward", "I": "backward", "W": "backward"}


class PricedAction(NamedTuple):
    """One priced action on a rank's device or links."""

    stream: str
    name: str
    seconds: float
    category: str
    bytes: float = 0.0
    flops: float = 0.0


class Meeting(NamedTuple):
    """Where ranks wait for each other: its name, and how many come."""

    name: Hashable
    members: int


@dataclass
class Work:
    """One segment of a slot: what is done in a row, what must be gathered before it and reduced after it."""

    name: str
    seconds: float  # of the device
    host: float  # of launching it, where the device waits for that
    pieces: list[PricedAction] = field(default_factory=list[PricedAction])
    waits: dict[str, float] = field(default_factory=dict[str, float])  # for messages, level to seconds
    gathers: list[Communicate] = field(default_factory=list[Communicate])
    reduces: list[Communicate] = field(default_factory=list[Communicate])
    receives: bool = False
    requested: float = 0.0  # seconds that pass at least after it requested what it receives
    sends: list[Communicate] = field(default_factory=list[Communicate])
    beside: float = 0.0  # of the host over the slot that begins here, where a soft maximum has it in already


class Works:
    """The work of every slot of a program."""

    def __init__(self, plan: PricedProgram, program: ExpandedProgram, joined: bool) -> None:
        self.plan, self.program, self.joined = plan, program, joined
        self.prices, self.trainer = plan.prices, plan.prices.trainer
        self.weights = WeightPrices(plan.program.weight_state, self.prices)
        self.overlap, self.soft = plan.overlap, self.prices.soft
        table = PlanTable(self.prices.cluster)
        table.add(plan)
        self._tables, self._plans = table.tables(compiled=False), table.plans(compiled=False)
        self._kernels = kernels(fast=False)
        self._bodies: dict[tuple[int, str, bool], Work] = {}
        self._slots: dict[tuple[int, str], list[Work]] = {}

    @cached_property
    def gated(self) -> bool:
        """Whether the device waits for launches."""
        return not self.soft and any(self._host(signature) for signature in range(len(self.plan.signatures)))

    def _host(self, signature: int) -> float:
        """Seconds of the host for a micro-batch, both passes."""
        return self._kernels.slot_host(self._tables, self._plans, 0, signature)[0]

    # slots

    def blocks(self, kind: RankKind) -> tuple[Block, ...]:
        """What a rank does at a time: slots, and pairs of two passes where a trainer runs them together."""
        if not self.trainer.experts.beside:
            return tuple((slot,) for slot in kind.slots)
        program = self.plan.program
        return program.schedule.blocks(program.ranks, program.plan.microbatches, program.chunks)[kind.place]

    def slot(self, at: int, kind: str) -> list[Work]:
        """What a slot of a stage does, in order."""
        if (at, kind) not in self._slots:
            self._slots[at, kind] = list(self._slot(at, kind))
        return self._slots[at, kind]

    def _slot(self, at: int, kind: str) -> Iterator[Work]:
        """The bodies of a slot, each with the figures of its segment."""
        stage, signature = self.program.stages[at], self.plan.stages[at]
        bodies = [body for body, times in stage.passes(kind) for _ in range(times)]
        figures = [0.0] * (SEGMENT * len(bodies))
        self._kernels.slot_segments(self._tables, self._plans, 0, signature, SLOT_KINDS.index(kind), figures, 0, True)
        waits, parts = [{}, *self._waits(stage, kind), {}], list(self._launch_parts(stage, signature, kind))
        more = [(), *self._small_kernels(signature, kind, parts), self._accumulation(at, kind)]
        hidden = self._host(signature) * sum(parts) if self.soft else 0.0
        for number, (body, waited, pieces) in enumerate(zip(bodies, waits, more, strict=True)):
            segment, own = figures[number * SEGMENT : (number + 1) * SEGMENT], self._work(body, kind)
            yield replace(
                own,
                seconds=segment[DEVICE],
                host=segment[HOST],
                pieces=[*own.pieces, *pieces],
                waits=waited,
                beside=0.0 if number else hidden,
            )

    def _launch_parts(self, stage: Stage, signature: int, kind: str) -> Iterator[float]:
        """For each layer the part of a micro-batch's launches that it has in a kind of slot."""
        launches = self._kernels.slot_host(self._tables, self._plans, 0, signature)[1]
        for layer in stage.layers if kind == "F" else reversed(stage.layers):
            own = float(self.plan.kinds[kind_of(layer.run)].launches[SLOT_KINDS.index(kind)])
            yield from [own / launches if launches else 0.0] * layer.times

    def _small_kernels(self, signature: int, kind: str, parts: Sequence[float]) -> Iterator[tuple[PricedAction, ...]]:
        """For each layer its part of the seconds that a trainer's small kernels and gaps take."""
        fixed = self.trainer.host.device_layer * self.plan.program.partition.layers[signature]
        for part in parts:
            yield (
                (PricedAction("compute", "small kernels and gaps", fixed * part, PHASE[kind]),) if fixed * part else ()
            )

    def _accumulation(self, at: int, kind: str) -> tuple[PricedAction, ...]:
        """Gradients of a micro-batch are added to those of others; weights in shares go in and out of messages."""
        if kind not in ("B", "W"):
            return ()
        copied = self.plan.traffic[self.plan.stages[at]].slot_copies
        parts = (ACCUMULATION, self.added(at), "backward"), (COPIES, copied, "backward")
        return tuple(PricedAction("compute", name, seconds, what) for name, seconds, what in parts if seconds)

    def _waits(self, stage: Stage, kind: str) -> Iterator[dict[str, float]]:
        """For each layer seconds of messages that are waited for, by level of the cluster."""
        levels = [level.name for level in self.prices.cluster.levels]
        for layer in stage.layers if kind == "F" else reversed(stage.layers):
            seconds = self.plan.kinds[kind_of(layer.run)].waits[SLOT_KINDS.index(kind)]
            found = {name: float(own) for name, own in zip(levels, seconds, strict=True) if own}
            yield from [found] * layer.times

    def _work(self, body: Body, kind: str) -> Work:
        """A body's actions that belong to a kind of slot."""
        key = (id(body), "" if kind in ("F", "B") else kind, kind == "F")
        if key not in self._bodies:
            self._bodies[key] = self._of_body(body, kind)
        return self._bodies[key]

    def _of_body(self, body: Body, kind: str) -> Work:
        work, fusion = Work(body.name, 0.0, 0.0), self.trainer.fusion
        run = list(chains(body.actions, self.trainer.execution, fusion.norms_take_in, fusion.complex_rotary))
        hidden = self.prices.hidden(run)
        for at, action in enumerate(run):
            if isinstance(action, Compute):
                if belongs(action, kind):
                    work.pieces.append(self._compute(action))
            elif isinstance(action, Communicate):
                if belongs(action, kind):
                    self._communicate(work, action, hidden.get(at, 0.0), waited=body.name == "leave")
            elif isinstance(action, Copy) and kind != "W":
                work.pieces.append(self.copy(action))
            elif isinstance(action, Update) and kind in ("B", "W"):  # weights change with each micro-batch
                work.pieces.append(self.update(action)[0])
        if self.trainer.storage.offloads_beside:
            work.pieces = list(_beside_kernels(work.pieces))
        if self.joined:
            work.pieces = list(_joined(work.pieces))
        return work

    # pieces

    def _compute(self, action: Compute) -> PricedAction:
        price = kernel_seconds(action, self.prices.device, self.prices.form, self.trainer)
        cost = action.cost
        phase = "recompute" if action.again else "forward" if action.part == "forward" else "backward"
        name = f"{action.path} {action.operator}".strip()
        return PricedAction("compute", name, price.seconds, phase, cost.read + cost.written, cost.matrix + cost.vector)

    def _communicate(self, work: Work, action: Communicate, hidden: float, waited: bool) -> None:
        """A message; `waited`: weights that come after an update, in every micro-batch, are waited for."""
        if action.kind == "receive":
            work.receives = True
            work.requested += self.prices.asked(action)
        elif action.kind == "send":
            work.sends.append(action)
        elif action.what == TrafficKind.WEIGHT_GRADIENTS and self.overlap:
            work.reduces.append(action)
        elif action.what == TrafficKind.WEIGHTS and self.overlap and not waited:
            work.gathers.append(action)
        else:
            piece = self.message(action)
            work.pieces.append(piece._replace(seconds=piece.seconds - hidden))
            around = self.prices.around(action)
            if around:
                phase = "forward" if action.what == TrafficKind.ACTIVATIONS else "backward"
                work.pieces.append(PricedAction("compute", f"{action.path} cut and joined".strip(), around, phase))

    def message(self, action: Communicate) -> PricedAction:
        category = "weights" if action.what in WEIGHTS else "activations"
        name = f"{action.kind} {action.path}".strip()
        stream = f"{category} {'+'.join(action.axes)}"
        return PricedAction(stream, name, self.weights.message(action), category, action.payload)

    def copy(self, action: Copy) -> PricedAction:
        way = "to the host" if action.to_host else "from the host"
        return PricedAction("copies", f"{action.what} {way}", self.weights.priced(action)[1], "copy", action.bytes)

    def update(self, action: Update) -> tuple[PricedAction, float]:
        """The optimizer's step, and the host's time to launch it."""
        cost, launched = action.cost, self.prices.update(action, self.weights.in_shares)[1]
        moved, work = cost.read + cost.written, cost.matrix + cost.vector
        return PricedAction("compute", action.rule, self.weights.priced(action)[1], "optimizer", moved, work), launched

    # gradients

    def buckets(self, at: int, kind: str) -> list[tuple[Communicate, int]]:
        """Reductions that leave in every backward pass of a stage, and the segment after which each does."""
        stage, after = self.program.stages[at], self.plan.traffic[self.plan.stages[at]].bucket_after
        own = [one for one in stage.leave_back.communications() if one.path.startswith(BUCKET)]
        late = kind in ("B", "W") and self.overlap > 0
        return list(zip(own, after, strict=True)) if late else []

    def once(self, at: int) -> list[tuple[Communicate, int]]:
        """Reductions once a step of a stage, and the segment of its last backward pass after which each may leave."""
        finish = self.program.stages[at].finish.communications()
        own = [one for one in finish if one.what == TrafficKind.WEIGHT_GRADIENTS and one.axes != (AxisName.PP,)]
        after = self.plan.traffic[self.plan.stages[at]].once_after
        return [*zip(own, after, strict=False), *((one, -1) for one in own[len(after) :])]

    def added(self, at: int) -> float:
        """Seconds in which the gradients of a micro-batch are added to those of others: the first adds to nothing."""
        traffic = self.plan.traffic[self.plan.stages[at]]
        return traffic.slot_update - traffic.slot_copies if self.plan.program.schedule.flushes else 0.0

    def bucket_copies(self, kind: RankKind) -> Iterator[PricedAction]:
        """A processor copies gradients into buckets and sums out of them; a GPU writes smaller ones and reads them."""
        for at in kind.stages:
            filled, emptied, size = self.plan.traffic[self.plan.stages[at]].bucket_copies
            yield PricedAction("compute", "gradients into buckets", filled, "backward", size)
            yield PricedAction("compute", "gradients out of buckets", emptied, "weights", size)

    # weights that several stages hold

    def tied(self, kind: RankKind) -> list[Communicate]:
        """Reductions over stages, of weights that several of them hold."""
        found = [action for at in kind.stages for action in self.program.stages[at].finish.communications()]
        return [
            action for action in found if action.what == TrafficKind.WEIGHT_GRADIENTS and action.axes == (AxisName.PP,)
        ]

    def meeting(self, kind: RankKind) -> Meeting:
        """Who reduces them: as many ranks as the messages say, with the same parts of the model, or the same bytes."""
        ranks = max(action.ranks for action in self.tied(kind))
        meetings = self._meetings(kind)
        met = next((key for key in meetings if len(self._holders[key]) == ranks), None)
        return Meeting(("nobody", kind.place), 1) if met is None else Meeting(met, ranks)

    @cached_property
    def _holders(self) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = defaultdict(list)
        for kind in self.program.kinds:
            for key in self._meetings(kind):
                found[key].append(kind.place)
        return found

    def _meetings(self, kind: RankKind) -> list[Hashable]:
        sums = self.tied(kind)
        if not sums:
            return []
        parts = frozenset(self.program.stages[at].part for at in kind.stages)
        return [("parts", parts), ("bytes", sum(action.payload for action in sums))]

    # once a step

    def last(self, kind: RankKind) -> Iterator[Action]:
        """What comes after all reductions."""
        for at in kind.stages:
            for action in self.program.stages[at].finish.actions:
                if not isinstance(action, Communicate) or action.what != TrafficKind.WEIGHT_GRADIENTS:
                    yield action


def _beside_kernels(pieces: list[PricedAction]) -> Iterator[PricedAction]:
    """The same with copies of activations as long as they go on after the kernels of their layer."""
    hidden = sum(one.seconds for one in pieces if one.stream == "compute")
    for one in pieces:
        if one.stream != "copies" or not one.name.startswith("activations"):
            yield one
        elif one.seconds > hidden:
            yield one._replace(seconds=one.seconds - hidden)


def _joined(pieces: Iterable[PricedAction]) -> Iterator[PricedAction]:
    """Neighbours of one stream and category as one piece, named for them."""
    for (_, category), alike in groupby(pieces, lambda one: (one.stream, one.category)):
        own = list(alike)
        first = own[0]._replace(name=own[0].name if len(own) == 1 else category)
        yield reduce(_sum, own[1:], first)


def _sum(one: PricedAction, other: PricedAction) -> PricedAction:
    return one._replace(
        seconds=one.seconds + other.seconds, bytes=one.bytes + other.bytes, flops=one.flops + other.flops
    )
