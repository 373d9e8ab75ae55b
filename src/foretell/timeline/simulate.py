"""A step played through, event by event: the judge of the composition, and what a trace shows.

Every kind of rank has streams: its host launches, its device computes, messages travel, bytes are copied.
Only prices are shared with the composition (`timeline.works`); what waits for what is found out here by playing the
program's segments in order.

- The host launches ahead of the device; the device starts nothing that was not launched. The host waits for the
  device where it receives from another stage (torch.cuda.synchronize in Megatron-LM's p2p_communication.py), and
  before the optimizer's step (training loops read the loss or the norm of the gradients).
- Messages of activations are waited for, but for what of them runs beside products (cost/tp_overlap.py). Messages for
  weights run behind the computation, one after the other: at the trainer's share of their speed while the rank works or
  waits for its host, not at all while it waits for a message on the same level of the cluster, at full speed between
  slots. Without overlap everything is waited for.
- Weights are gathered so many units ahead as the trainer does, inside one slot. Gradients leave when they
  are there: those of a layer after it, buckets after the segment that has made the last of their gradients.
- The optimizer waits for all of them.
- The thread of a processor's rank does the work for weights itself (cost/cpu_host_work.py): gradients are added up
  after each backward pass but the first, and go through buckets before the update.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from foretell.cost.price import PricedProgram
from foretell.plan.schedule import Block, Slot
from foretell.program.action import Action, Communicate, Copy, Update
from foretell.program.exchange import BUCKET
from foretell.program.expand import expand
from foretell.program.expanded import ExpandedProgram, RankKind
from foretell.timeline.pairs import hidden_seconds
from foretell.timeline.streams import Behind, Board, Busy, Process, WeightMessage
from foretell.timeline.works import ACCUMULATION, PricedAction, Work, Works


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
    slot: Slot | None = None  # in which it was seen; none: once a step


class Simulated(msgspec.Struct, frozen=True):
    """One step, played through."""

    step_seconds: float
    events: tuple[Event, ...]
    kinds: tuple[str, ...]  # what each kind of rank is called
    model: str
    plan: str
    microbatches: int = 1


def simulate(
    plan: PricedProgram, program: ExpandedProgram | None = None, ahead: bool = False, joined: bool = False
) -> Simulated:
    """Play one step by its prices; `program` is the plan's, where somebody has it written out already.

    With `ahead` the host does not wait for the device before the optimizer's step, and goes on into the next step:
    the step is then one of many in a row. With `joined` neighbouring actions of a layer that are alike are one event:
    the same step, told in fewer events.
    """
    program = program or expand(plan.program)
    works = Works(plan, program, joined)
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
    names = tuple(_called(kind, len(program.kinds)) for kind in program.kinds)
    return Simulated(end - before, tuple(events), names, program.model, program.plan, program.microbatches)


def _called(kind: RankKind, kinds: int) -> str:
    ranks = f"{kind.ranks:,} rank{'s' if kind.ranks > 1 else ''}"
    return f"pipeline rank {kind.place}, {ranks}" if kinds > 1 else ranks


def _play(ranks: list[_Rank]) -> float:
    """All ranks to the end of their step; when the last one is there."""
    board = Board()
    board.run([rank.step(board) for rank in ranks])
    return max(rank.now for rank in ranks)


class _Rank:
    """One kind of rank: its clocks, and what happened on its streams."""

    def __init__(self, kind: RankKind, works: Works, ahead: bool) -> None:
        self.kind, self.works, self.program, self.ahead = kind, works, works.program, ahead
        self.now = 0.0  # when the device is free
        self.host = 0.0
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A step begins on the device; the host goes on."""
        self.now = now
        self.sent: dict[str, float] = {}
        self.behind = Behind(free=now)
        self.passed: dict[int, list[float]] = {}  # when each segment of a stage's latest backward pass was over
        self.events: list[Event] = []
        self.slot: Slot | None = None

    def step(self, board: Board) -> Process:
        for block in self.works.blocks(self.kind):
            yield from self._block(block, board)
        self.slot = None
        yield from self._finish(board)

    # a slot

    def _block(self, block: Block, board: Board) -> Process:
        """A slot; or a forward and a backward together: they begin when both have what they receive, and end as one."""
        gathers: dict[int, list[WeightMessage]] = {}
        for at, slot in enumerate(block):
            self.slot = slot
            works = self.works.slot(slot.stage, slot.kind)
            if not at:
                gathers = self._gathers(works)
                self._issue(gathers, -1)
            if any(work.receives for work in works):
                yield from self._receive(slot, works, board)
        begun, seen, ran = self.now, len(self.events), len(self.behind.busy)
        for at, slot in enumerate(block):
            self.slot = slot
            self._slot(slot, None if at else gathers)
        hidden = hidden_seconds(self.works.plan, block) if len(block) > 1 else 0.0
        if hidden:
            self._shorten(begun, max(self.now - hidden, self.host), seen, ran)
        for slot in block:
            self.slot = slot
            works = self.works.slot(slot.stage, slot.kind)
            self._send(slot, [send for work in works for send in work.sends], board)

    def _receive(self, slot: Slot, works: list[Work], board: Board) -> Process:
        stage = self.program.stages[slot.stage]
        key = ("F", stage.before, slot.microbatch) if slot.kind == "F" else ("B", stage.after, slot.microbatch)
        yield key
        self.now = max(self.now + sum(work.requested for work in works), board.when(key))
        self.host = max(self.host, self.now)

    def _shorten(self, begun: float, end: float, seen: int, ran: int) -> None:
        """What was played one after the other since then is over sooner: messages ran beside kernels."""
        share = (end - begun) / (self.now - begun)

        def moved(when: float) -> float:
            return begun + (when - begun) * share if when > begun else when

        for at in range(seen, len(self.events)):
            event = self.events[at]
            if event.stream != "host" and event.start >= begun and event.category != "weights":
                self.events[at] = event._replace(start=moved(event.start), seconds=event.seconds * share)
        for at in range(ran, len(self.behind.busy)):
            busy = self.behind.busy[at]
            self.behind.busy[at] = busy._replace(start=moved(busy.start), end=moved(busy.end))
        self.now = end

    def _slot(self, slot: Slot, gathers: dict[int, list[WeightMessage]] | None) -> None:
        """What a slot does; of `gathers` that are given the first are on their way already."""
        works = self.works.slot(slot.stage, slot.kind)
        if gathers is None:
            gathers = self._gathers(works)
            self._issue(gathers, -1)
        late = slot.kind in ("B", "W")
        first = late and slot.stage not in self.passed
        passed: list[float] = []
        for at, work in enumerate(works):
            if at in gathers:
                self._issue(gathers, at)
                self._wait(gathers[at])
            less = self.works.added(slot.stage) if first and at == len(works) - 1 else 0.0
            self._do(work, less)
            passed.append(self.now)
            for reduction in work.reduces:
                if not reduction.path.startswith(BUCKET):
                    self.behind.issue(self._behind(reduction))
        if late:
            self.passed[slot.stage] = passed
        for bucket, segment in self.works.buckets(slot.stage, slot.kind):
            self._leave(bucket, passed[segment])

    def _gathers(self, works: list[Work]) -> dict[int, list[WeightMessage]]:
        """The messages that bring a work's weights, by its place in the slot."""
        return {at: [self._behind(one) for one in work.gathers] for at, work in enumerate(works) if work.gathers}

    def _behind(self, action: Communicate) -> WeightMessage:
        stream, name, seconds, _, size, _ = self.works.message(action)
        return WeightMessage(name, stream, self.works.prices.level(action), seconds, self.now, size)

    def _issue(self, gathers: dict[int, list[WeightMessage]], at: int) -> None:
        """Units whose turn it is to be gathered when the unit at this place begins (-1: the slot)."""
        places = sorted(gathers)
        first = places.index(at) if at >= 0 else -1
        ahead = self.works.trainer.storage.prefetch
        wanted = places[first + ahead : first + ahead + 1] if at >= 0 else places[:ahead] if ahead else []
        for place in wanted:
            for message in gathers[place]:
                message.issued = self.now
                self.behind.issue(message)

    def _wait(self, messages: list[WeightMessage]) -> None:
        self._ran(self.behind.until(messages[-1]))
        self.now = max(self.now, messages[-1].end)

    def _ran(self, messages: Iterable[WeightMessage]) -> None:
        for m in messages:
            self._saw(m.stream, m.name, m.start, m.end - m.start, "weights", m.bytes)

    def _do(self, work: Work, less: float) -> None:
        """A segment, at the pace of the slower of host and device; `less` of its seconds are not needed this time."""
        launched, seconds = self.host, work.seconds - less
        self.host += work.host
        start = max(self.now, launched) if work.host else self.now
        end = max(start + seconds, self.host) if work.host else start + seconds
        self.now = end
        if end > start:
            self.behind.busy.append(Busy(start, end, self._rates(work, end - start)))
        if work.host:
            self._saw("host", f"launch {work.name}", launched, work.host, "host")
        self._saw("host", "launch a slot", start, work.beside, "host")
        pieces = [piece for piece in work.pieces if not less or piece.name != ACCUMULATION]
        own = sum(piece.seconds for piece in pieces)  # which may be less: a soft maximum has the host in it
        stretch = (end - start) / own if own else 1.0
        at = start
        for piece in pieces:
            self._saw(piece.stream, piece.name, at, piece.seconds, piece.category, piece.bytes, piece.flops)
            at += piece.seconds * stretch

    def _rates(self, work: Work, length: float) -> dict[str, float]:
        """How fast messages of each level go beside a work."""
        overlap = self.works.overlap
        return {"": overlap, **{level: overlap * (1 - waits / length) for level, waits in work.waits.items()}}

    def _leave(self, action: Communicate, ready: float) -> None:
        message = self._behind(action)
        message.issued = ready
        self.behind.issue(message)

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
        """Reduce what is not reduced yet, update, and bring new weights to those who do not have them."""
        ready: list[tuple[float, Communicate]] = []
        for at in self.kind.stages:
            passed = self.passed.get(at, [self.now])
            ready += [(passed[segment], reduction) for reduction, segment in self.works.once(at)]
        for when, reduction in sorted(ready, key=lambda own: own[0]):
            self._leave(reduction, when if self.works.overlap else self.now)
        if not self.works.overlap:
            self.behind.free = self.now
        self._ran(self.behind.until())
        self.now = max(self.now, self.behind.free)
        yield from self._tied(board)
        for piece in self.works.bucket_copies(self.kind):
            self._piece(piece, self.now)
        if not self.ahead:
            self.host = max(self.host, self.now)
        for action in self.works.last(self.kind):
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

    def _piece(self, piece: PricedAction, start: float) -> None:
        self._saw(piece.stream, piece.name, start, piece.seconds, piece.category, piece.bytes, piece.flops)
        self.now = start + piece.seconds

    def _saw(
        self, stream: str, name: str, start: float, seconds: float, category: str, size: float = 0.0, flops: float = 0.0
    ) -> None:
        if seconds:
            self.events.append(Event(self.kind.place, stream, name, start, seconds, category, size, flops, self.slot))
