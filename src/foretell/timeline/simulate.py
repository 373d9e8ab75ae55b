"""A step played through, event by event: the judge of the composition, and what a trace shows.

Every kind of rank has streams: its host launches, its device computes, messages travel, bytes are copied.
Only prices are shared with the composition (kernels, collectives, the trainer's constants); what waits
for what is found out here by playing the program's actions in order.

- The host launches ahead of the device; the device starts nothing that was not launched. The host waits for the
  device where it receives from another stage (torch.cuda.synchronize in Megatron-LM's p2p_communication.py), and
  before the optimizer's step (training loops read the loss or the norm of the gradients).
- Messages of activations are waited for, but for what of them runs beside products (cost/beside.py). Messages for
  weights run behind the computation, one after the other: at the trainer's share of their speed while the rank works or
  waits for its host, not at all while it waits for a message on the same level of the cluster, at full speed between
  slots. Without overlap everything is waited for.
- Weights are gathered so many units ahead as the trainer does, inside one slot. Gradients leave when they
  are there: those of a layer after it, buckets when the backward pass has made as large a part of the gradients.
- The optimizer waits for all of them.
- The thread of a processor's rank does the chores of weights itself (cost/chores.py): gradients are added up after each
  backward pass but the first, and go through buckets before the update.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import groupby
from typing import NamedTuple

import msgspec

from foretell.cost.chores import Chores, shares_weights
from foretell.cost.host import as_executed, overlap_share
from foretell.cost.kernels import chains, kernel_seconds
from foretell.cost.stage import Prices
from foretell.hardware.cluster import Cluster
from foretell.plan.policies.precision import Precision
from foretell.plan.schedule import Slot
from foretell.plan.setting import Setting
from foretell.plan.strategies.tensor import Tensor
from foretell.program.action import Action, Communicate, Compute, Copy, Update
from foretell.program.body import Body
from foretell.program.exchange import BUCKET
from foretell.program.mesh import mesh
from foretell.program.program import Program, RankKind, Stage, belongs
from foretell.timeline.streams import Behind, Board, Busy, Message, Process

WEIGHTS = ("weights", "weight gradients")
"""What travels because of weights."""


class Event(NamedTuple):
    """Something that took time on one stream of one kind of rank."""

    kind: int  # of rank: its place on the pipeline
    stream: str
    name: str
    start: float  # seconds from the beginning of the step; the host may be ahead of it
    seconds: float
    category: str  # forward, backward, recompute, optimizer, activations, weights, transfer, copy, host
    bytes: float = 0.0
    flops: float = 0.0


class Simulated(msgspec.Struct, frozen=True):
    """One step, played through."""

    step_seconds: float
    events: tuple[Event, ...]
    kinds: tuple[str, ...]  # what each kind of rank is called
    model: str
    plan: str


def simulate(
    program: Program, setting: Setting, cluster: Cluster, ahead: bool = False, joined: bool = False
) -> Simulated:
    """Play one step of a program on a cluster. The setting is the one that was lowered.

    With `ahead` the host does not wait for the device before the optimizer's step, and goes on into the next step:
    the step is then one of many in a row. With `joined` neighbouring actions of a layer that are alike are one event:
    the same step, told in fewer events.
    """
    works = _Works(program, setting, cluster, joined)
    ranks = [_Rank(kind, works, ahead) for kind in program.kinds]
    before = 0.0
    if ahead and works.gated:  # a first step, in which the host gets ahead as far as it can
        before = _play(ranks)
    for rank in ranks:
        rank.begin(before)
    end = _play(ranks)
    events = [event for rank in ranks for event in rank.events]
    if before:
        events = [event._replace(start=event.start - before) for event in events]
    names = tuple(f"place {kind.place}, {kind.ranks} rank{'s' if kind.ranks > 1 else ''}" for kind in program.kinds)
    return Simulated(end - before, tuple(events), names, program.model, program.plan)


def _play(ranks: list[_Rank]) -> float:
    """All ranks to the end of their step; when the last one is there."""
    board = Board()
    board.run([rank.step(board) for rank in ranks])
    return max(rank.now for rank in ranks)


# What there is to do. --------------------------------------------------------------------------------


class Piece(NamedTuple):
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
    """One body in one slot: what is done in a row, what must be gathered before and summed after."""

    name: str
    pieces: list[Piece] = field(default_factory=list[Piece])
    waits: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))  # level to seconds
    launches: float = 0.0
    gradients: float = 0.0  # bytes of gradients of weights that it makes
    again: float = 0.0  # seconds of what runs a second time
    gathers: list[Communicate] = field(default_factory=list[Communicate])
    reduces: list[Communicate] = field(default_factory=list[Communicate])
    receives: bool = False
    asked: float = 0.0  # seconds that pass at least after it asked for what it receives
    sends: list[Communicate] = field(default_factory=list[Communicate])
    seconds: float = 0.0
    host: float = 0.0  # that the device waits for
    beside: float = 0.0  # of the host over the slot that begins here, where a soft maximum has it in already

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.seconds += piece.seconds


class _Works:
    """The work of every slot of a program, priced."""

    def __init__(self, program: Program, setting: Setting, cluster: Cluster, joined: bool = False) -> None:
        self.program, self.setting, self.cluster, self.joined = program, setting, cluster, joined
        self.trainer = as_executed(setting)
        self.form = setting.plan.policy(Precision).format
        self.prices = Prices(program.axes, cluster, self.form, self.trainer)
        self.pipelined = len(program.kinds) > 1
        self.share = overlap_share(setting.plan, self.trainer, self.pipelined)
        self.chores = Chores(self.prices)
        self.storages = {axis.name: axis.storage.name for axis in mesh(setting.plan)}
        self.in_shares = any(storage in ("zero2", "zero3") for storage in self.storages.values())
        self._bodies: dict[tuple[int, str, bool], Work] = {}
        self._slots: dict[tuple[int, str], list[Work]] = {}

    @property
    def soft(self) -> bool:
        """Whether host and device meet in a soft maximum; then it stretches slots, and no launch is waited for."""
        return math.isfinite(self.trainer.host.sharpness)

    @cached_property
    def gated(self) -> bool:
        return not self.soft and any(self._host(stage) for stage in self.program.stages)

    # slots

    def slot(self, at: int, kind: str) -> list[Work]:
        """What a slot of a stage does, in order."""
        if (at, kind) not in self._slots:
            self._slots[at, kind] = list(self._slot(at, kind))
        return self._slots[at, kind]

    def _slot(self, at: int, kind: str) -> Iterator[Work]:
        stage = self.program.stages[at]
        launches, host = self._launches(stage), self._host(stage)
        fixed = self.trainer.host.device_layer * self._layers(stage)
        found: list[tuple[Work, int]] = []
        for body, times in stage.passes(kind):
            work = self.body(body, kind)
            part = work.launches / launches if launches else 0.0
            own = replace(work, pieces=list(work.pieces), host=host * part)
            if fixed:
                own.add(Piece("compute", "small kernels and gaps", fixed * part, _phase(kind)))
            found.append((own, times))
        if self.soft and host:
            self._stretch(found)
        for work, times in found:
            yield from [work] * times

    def _stretch(self, found: list[tuple[Work, int]]) -> None:
        """Host and device meet over a slot in a soft maximum (the trainer's constant)."""
        q = self.trainer.host.sharpness
        device = sum(work.seconds * times for work, times in found)
        host = sum(work.host * times for work, times in found)
        whole = (device**q + host**q) ** (1 / q)
        for work, _ in found:
            work.seconds *= whole / device if device else 1.0
            work.host = 0.0
        found[0][0].beside = host

    def body(self, body: Body, kind: str) -> Work:
        """A body's actions that belong to a kind of slot."""
        key = (id(body), "" if kind in ("F", "B") else kind, kind == "F")
        if key not in self._bodies:
            self._bodies[key] = self._priced(body, kind)
        return self._bodies[key]

    def _priced(self, body: Body, kind: str) -> Work:
        work = Work(body.name)
        run = list(chains(body.actions, self.trainer.execution, self.trainer.fusion.norms_take_in))
        hidden = self.prices.hidden(run)
        for at, action in enumerate(run):
            if isinstance(action, Compute):
                if belongs(action, kind):
                    self._compute(work, action)
            elif isinstance(action, Communicate):
                if belongs(action, kind):
                    self._communicate(work, action, hidden.get(at, 0.0))
            elif isinstance(action, Copy) and kind != "W":
                work.add(self.copy(action))
            elif isinstance(action, Update) and kind in ("B", "W"):  # weights change with each micro-batch
                work.add(self.update(action)[0])
        if self.joined:
            work.pieces = list(_joined(work.pieces))
        return work

    def _compute(self, work: Work, action: Compute) -> None:
        price = kernel_seconds(action, self.cluster.device, self.form, self.trainer)
        cost = action.cost
        phase = "recompute" if action.again else "forward" if action.part == "forward" else "backward"
        name = f"{action.path} {action.operator}".strip()
        piece = Piece("compute", name, price.seconds, phase, cost.read + cost.written, cost.matrix + cost.vector)
        work.add(piece)
        work.launches += price.launches
        if action.part == "weight_gradient":
            work.gradients += cost.written
        if action.again:
            work.again += price.seconds

    def _communicate(self, work: Work, action: Communicate, hidden: float) -> None:
        if action.kind == "receive":
            work.receives = True
            work.asked += self.prices.asked(action)
        elif action.kind == "send":
            work.sends.append(action)
        elif action.what in WEIGHTS and self.share:
            (work.gathers if action.what == "weights" else work.reduces).append(action)
        else:
            piece = self.message(action)
            work.add(piece._replace(seconds=piece.seconds - hidden))
            work.waits[self.level(action)] += piece.seconds

    def message(self, action: Communicate) -> Piece:
        category = "weights" if action.what in WEIGHTS else "activations"
        name = f"{action.kind} {action.path}".strip()
        stream = f"{category} {'+'.join(action.axes)}"
        around = self.chores.of_unit(action) if shares_weights(action, self.storages) else 0.0
        return Piece(stream, name, self.prices.message(action) + around, category, action.payload)

    def level(self, action: Communicate) -> str:
        group = self.prices.group(action)
        return self.cluster.level_of(group.ranks, group.stride).name

    def copy(self, action: Copy) -> Piece:
        way = "to the host" if action.to_host else "from the host"
        return Piece("copies", f"{action.what} {way}", action.bytes / self.prices.host_bandwidth, "copy", action.bytes)

    def update(self, action: Update) -> tuple[Piece, float]:
        """The optimizer's step, and the host's time to launch it."""
        seconds, launched = self.prices.update(action)
        seconds += self.chores.of_update(action) if self.in_shares else 0.0
        cost = action.cost
        moved, work = cost.read + cost.written, cost.matrix + cost.vector
        return Piece("compute", action.rule, seconds, "optimizer", moved, work), launched

    def added(self, stage: Stage) -> Piece:
        """A micro-batch's gradients are added to those of others, where weights wait for all of them."""
        waits = not self.in_shares and not any(isinstance(one, Update) for one in stage.leave_back.actions)
        size = stage.memory.trained * self.form.gradient
        seconds = self.chores.accumulated(size, _tensors(stage)) if waits else 0.0
        return Piece("compute", "sums of gradients", seconds, "backward", size)

    def copied(self, kind: RankKind) -> Iterator[Piece]:
        """Gradients go into buckets, and their sums come out of them."""
        for stage in (self.program.stages[at] for at in kind.stages):
            sums = [one for body in (stage.leave_back, stage.finish) for one in body.communications()]
            own = [one for one in sums if one.path.startswith(BUCKET) and not shares_weights(one, self.storages)]
            size = sum(one.payload for one in own)
            filled, emptied = self.chores.buckets(size, _tensors(stage))
            yield Piece("compute", "gradients into buckets", filled, "backward", size)
            yield Piece("compute", "gradients out of buckets", emptied, "weights", size)

    # weights that several stages hold

    def tied(self, kind: RankKind) -> list[Communicate]:
        """Sums over stages, of weights that several of them hold."""
        found = [action for at in kind.stages for action in self.program.stages[at].finish.communications()]
        return [action for action in found if action.what == "weight gradients" and action.axes == ("pp",)]

    def meeting(self, kind: RankKind) -> Meeting:
        """Who sums them: as many ranks as the sums say, with the same parts of the model, or else the same bytes."""
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

    # the host

    def _both(self, stage: Stage) -> Iterator[tuple[Work, int]]:
        for kind in ("F", "B"):
            for body, times in stage.passes(kind):
                yield self.body(body, kind), times

    def _launches(self, stage: Stage) -> float:
        return sum(work.launches * times for work, times in self._both(stage))

    @staticmethod
    def _layers(stage: Stage) -> int:
        return sum(layer.times for layer in stage.layers if layer.run.layer)

    def _host(self, stage: Stage) -> float:
        """The host's seconds for one micro-batch, forward and backward, by the trainer's constants."""
        constants = self.trainer.host
        tensor = self.setting.plan.axis(Tensor)
        ranks = tensor.ranks if tensor else 1
        layers = self._layers(stage)
        by_layer = constants.layer * layers
        if not constants.layer_recomputes and any(work.again for work, _ in self._both(stage)):
            by_layer *= 4 / 3  # a second forward pass beside one forward and two backward
        grown = (constants.launch * self._launches(stage) + by_layer) * (1 + constants.tensor_growth * math.log2(ranks))
        across = self.pipelined and self.cluster.nodes > 1
        least = constants.floor + constants.floor_tensor * ranks + constants.floor_pair * ranks**2
        floor = layers * least if across else 0.0
        return max(grown + constants.microbatch, floor)


def _tensors(stage: Stage) -> int:
    """Weights of a stage that are trained, each a tensor of its own."""
    bodies = (stage.finish, stage.leave_back)
    return max(1, sum(one.tensors for body in bodies for one in body.actions if isinstance(one, Update)))


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbours of one stream and category as one piece, named for them."""
    for (_, category), alike in groupby(pieces, lambda one: (one.stream, one.category)):
        own = list(alike)
        first = own[0]._replace(name=own[0].name if len(own) == 1 else category)
        yield reduce(_sum, own[1:], first)


def _sum(one: Piece, other: Piece) -> Piece:
    return one._replace(
        seconds=one.seconds + other.seconds, bytes=one.bytes + other.bytes, flops=one.flops + other.flops
    )


def _phase(kind: str) -> str:
    return "forward" if kind == "F" else "backward"


# Ranks at work. --------------------------------------------------------------------------------------


class Mark(NamedTuple):
    """How much of its gradients a stage has made by when."""

    when: float
    made: float


class _Rank:
    """One kind of rank: its clocks, and what happened on its streams."""

    def __init__(self, kind: RankKind, works: _Works, ahead: bool) -> None:
        self.kind, self.works, self.program, self.ahead = kind, works, works.program, ahead
        self.now = 0.0  # when the device is free
        self.host = 0.0
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A step begins on the device; the host goes on."""
        self.now = now
        self.sent: dict[str, float] = {}
        self.behind = Behind(free=now)
        self.marks: dict[int, list[Mark]] = {}
        self.events: list[Event] = []

    def step(self, board: Board) -> Process:
        for slot in self.kind.slots:
            yield from self._slot(slot, board)
        yield from self._finish(board)

    # a slot

    def _slot(self, slot: Slot, board: Board) -> Process:
        works = self.works.slot(slot.stage, slot.kind)
        gathers = self._gathers(works)
        self._issue(gathers, -1)
        if any(work.receives for work in works):
            stage = self.program.stages[slot.stage]
            key = ("F", stage.before, slot.microbatch) if slot.kind == "F" else ("B", stage.after, slot.microbatch)
            yield key
            self.now = max(self.now + sum(work.asked for work in works), board.when(key))
            self.host = max(self.host, self.now)
        marks = [Mark(self.now, 0.0)]
        for at, work in enumerate(works):
            if at in gathers:
                self._issue(gathers, at)
                self._wait(gathers[at])
            self._do(work)
            marks.append(Mark(self.now, marks[-1].made + work.gradients))
            self._reduce(work, marks)
        if marks[-1].made:
            if slot.stage in self.marks:
                self._piece(self.works.added(self.program.stages[slot.stage]), self.now)
            self.marks[slot.stage] = marks
        self._send(slot, [send for work in works for send in work.sends], board)

    def _gathers(self, works: list[Work]) -> dict[int, list[Message]]:
        """The messages that bring a work's weights, by its place in the slot."""
        return {at: [self._behind(one) for one in work.gathers] for at, work in enumerate(works) if work.gathers}

    def _behind(self, action: Communicate) -> Message:
        stream, name, seconds, _, size, _ = self.works.message(action)
        return Message(name, stream, self.works.level(action), seconds, self.now, size)

    def _issue(self, gathers: dict[int, list[Message]], at: int) -> None:
        """Units whose turn it is to be gathered when the unit at this place begins (-1: the slot)."""
        places = sorted(gathers)
        first = places.index(at) if at >= 0 else -1
        ahead = self.works.trainer.storage.prefetch
        wanted = places[first + ahead : first + ahead + 1] if at >= 0 else places[:ahead] if ahead else []
        for place in wanted:
            for message in gathers[place]:
                message.issued = self.now
                self.behind.issue(message)

    def _wait(self, messages: list[Message]) -> None:
        self._ran(self.behind.until(messages[-1]))
        self.now = max(self.now, messages[-1].end)

    def _ran(self, messages: Iterable[Message]) -> None:
        for m in messages:
            self._saw(m.stream, m.name, m.start, m.end - m.start, "weights", m.bytes)

    def _do(self, work: Work) -> None:
        """A body, at the pace of the slower of host and device."""
        launched = self.host
        self.host += work.host
        start = max(self.now, launched) if work.host else self.now
        end = max(start + work.seconds, self.host) if work.host else start + work.seconds
        self.now = end
        if end > start:
            self.behind.busy.append(Busy(start, end, self._rates(work, end - start)))
        if work.host:
            self._saw("host", f"launch {work.name}", launched, work.host, "host")
        self._saw("host", "launch a slot", start, work.beside, "host")
        own = sum(piece.seconds for piece in work.pieces)
        stretch = (end - start) / own if own else 1.0
        at = start
        for piece in work.pieces:
            self._saw(piece.stream, piece.name, at, piece.seconds, piece.category, piece.bytes, piece.flops)
            at += piece.seconds * stretch

    def _rates(self, work: Work, length: float) -> dict[str, float]:
        """How fast messages of each level go beside a work."""
        share = self.works.share
        return {"": share, **{level: share * (1 - waits / length) for level, waits in work.waits.items()}}

    def _reduce(self, work: Work, marks: list[Mark]) -> None:
        """Gradients of a layer leave after it, buckets when they were full."""
        if not work.reduces:
            return
        buckets = [one for one in work.reduces if one.path.startswith(BUCKET)]
        for one in work.reduces:
            if one not in buckets:
                self.behind.issue(self._behind(one))
        self._leave(buckets, marks)

    def _leave(self, buckets: list[Communicate], marks: list[Mark]) -> None:
        for message, ready in self._full(buckets, marks):
            message.issued = ready
            self.behind.issue(message)

    def _full(self, buckets: list[Communicate], marks: list[Mark]) -> list[tuple[Message, float]]:
        """When the backward pass has made a bucket's part of the gradients; parts go by bytes."""
        whole = Counter[tuple[str, tuple[str, ...]]]()
        for one in buckets:
            whole[one.kind, one.axes] += one.payload
        made = Counter[tuple[str, tuple[str, ...]]]()
        found: list[tuple[Message, float]] = []
        for one in buckets:
            made[one.kind, one.axes] += one.payload
            part = made[one.kind, one.axes] / whole[one.kind, one.axes]
            at = bisect_left(marks, part * marks[-1].made * (1 - 1e-9), key=lambda mark: mark.made)
            found.append((self._behind(one), marks[min(at, len(marks) - 1)].when))
        return found

    def _send(self, slot: Slot, sends: list[Communicate], board: Board) -> None:
        if not sends:
            return
        way = "F" if slot.kind == "F" else "B"
        stream = "sends forward" if way == "F" else "sends backward"
        start = max(self.now, self.sent.get(way, 0.0))
        for send in sends:
            seconds = self.works.prices.message(send)
            self._saw(stream, f"{send.what} of {slot.microbatch}", start, seconds, "transfer", send.payload)
            start += seconds
        self.sent[way] = start
        board.post((way, slot.stage, slot.microbatch), start)

    # once a step

    def _finish(self, board: Board) -> Process:
        """Sum what is not summed yet, update, and bring new weights to those who do not have them."""
        rest: list[Action] = []
        late: list[tuple[Message, float]] = []
        for at in self.kind.stages:
            marks = self.marks.get(at, [Mark(self.now, 0.0)])
            sums: list[Communicate] = []
            for action in self.program.stages[at].finish.actions:
                if not isinstance(action, Communicate) or action.what != "weight gradients":
                    rest.append(action)
                elif action.axes != ("pp",):
                    sums.append(action)
            late += self._full(sums, marks)
        for message, ready in sorted(late, key=lambda one: one[1]):
            message.issued = ready if self.works.share else self.now
            self.behind.issue(message)
        if not self.works.share:
            self.behind.free = self.now
        self._ran(self.behind.until())
        self.now = max(self.now, self.behind.free)
        yield from self._tied(board)
        for piece in self.works.copied(self.kind):
            self._piece(piece, self.now)
        if not self.ahead:
            self.host = max(self.host, self.now)
        for action in rest:
            self._last(action)

    def _tied(self, board: Board) -> Process:
        """Ranks that hold the same weights meet, and sum their gradients."""
        sums = self.works.tied(self.kind)
        if sums:
            key, members = self.works.meeting(self.kind)
            board.meet(key, members, self.now)
            yield key
            self.now = max(self.now, board.when(key))
        for action in sums:
            self._piece(self.works.message(action), self.now)

    def _last(self, action: Action) -> None:
        if isinstance(action, Update):
            piece, host = self.works.update(action)
            launched = self.host
            self.host += host
            if host:
                self._saw("host", f"launch {piece.name}", launched, host, "host")
            self._piece(piece, max(self.now, launched) if host else self.now)
            self.now = max(self.now, self.host) if host else self.now
        elif isinstance(action, Communicate):
            self._piece(self.works.message(action), self.now)
        elif isinstance(action, Copy):
            self._piece(self.works.copy(action), self.now)

    def _piece(self, piece: Piece, start: float) -> None:
        self._saw(piece.stream, piece.name, start, piece.seconds, piece.category, piece.bytes, piece.flops)
        self.now = start + piece.seconds

    def _saw(
        self, stream: str, name: str, start: float, seconds: float, category: str, size: float = 0.0, flops: float = 0.0
    ) -> None:
        if seconds:
            self.events.append(Event(self.kind.place, stream, name, start, seconds, category, size, flops))
