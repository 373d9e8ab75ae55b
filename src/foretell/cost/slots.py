"""What each slot of a stage costs, turn by turn: on the device, on the host, and what travels beside it.

A turn is one body in one slot. Turns are what host and device meet in, and what messages for weights hide behind.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from foretell.cost.host import as_executed, host_seconds
from foretell.cost.stage import HIDES, Cost, Prices, StageCost
from foretell.hardware.cluster import Cluster
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.trainer import look_up
from foretell.program.action import Communicate
from foretell.program.body import Body
from foretell.program.program import Program, Stage
from foretell.units import Quantity, at_least

Parts: TypeAlias = dict[str, Quantity]
"""Seconds by what they are spent on: the keys of a breakdown."""


class Turn(NamedTuple):
    """One body in one slot, so many times in a row; the figures are those of one time."""

    times: int
    parts: Parts  # of the device
    device: Quantity  # their sum
    room: Quantity  # that messages for weights may run beside
    host: Quantity  # to launch it
    made: Quantity  # bytes of gradients of weights
    gather: Quantity = 0.0  # seconds of messages that bring its weights
    sums: Quantity = 0.0  # of those that may leave after it
    once: Quantity = 0.0  # the same, of those that leave once a step


class Pass(NamedTuple):
    """One slot of a stage."""

    turns: tuple[Turn, ...]
    last: tuple[Turn, ...]  # the same in the step's last slot of this kind, after which sums once a step may leave
    beside: Parts  # what travels for weights, once a slot
    send: Quantity
    receives: bool

    def parts(self) -> Parts:
        """The device's seconds, by what they are spent on."""
        found: Parts = defaultdict(float)
        for turn in self.turns:
            for name, seconds in turn.parts.items():
                found[name] += seconds * turn.times
        return found


class Slots:
    """The slots of one program on one cluster."""

    def __init__(self, program: Program, setting: Setting, cluster: Cluster) -> None:
        self.program, self.setting, self.cluster = program, setting, cluster
        self.trainer = as_executed(setting)
        self.prices = Prices(program, cluster, setting.plan.policy(Precision).format, self.trainer)
        self.pipelined = len(program.kinds) > 1
        self.share = self._share()
        self.costs = [self.prices.stage(stage) for stage in program.stages]
        self._levels = self._taken()
        self._found: dict[tuple[int, str], Pass] = {}

    def slot(self, at: int, kind: str) -> Pass:
        """A kind of slot of a stage."""
        if (at, kind) not in self._found:
            self._found[at, kind] = self._slot(at, kind)
        return self._found[at, kind]

    @property
    def soft(self) -> bool:
        """Whether host and device meet in a soft maximum, over a slot; then no launch is waited for."""
        return math.isfinite(self.trainer.host.sharpness)

    def once(self, at: int) -> list[Communicate]:
        """Sums of a stage's gradients once a step, but for weights that other stages hold too."""
        sums = (one for one in self.program.stages[at].finish.communications() if one.what == "weight gradients")
        return [one for one in sums if one.axes != ("pp",)]

    def _share(self) -> float:
        """How fast messages for weights go while the rank computes; 0: they are waited for."""
        said = self.setting.plan.policy(Overlap).when
        if said != "trainer":
            return 1.0 if said == "always" else 0.0
        gradients = self.trainer.gradients
        table = gradients.overlap_pipeline if self.pipelined else gradients.overlap
        return look_up(table, getattr(self.setting.plan.axis("dp"), "storage", "replicated"))

    def _taken(self) -> set[str]:
        """Levels of the cluster that messages for weights take up."""
        bodies = (body for stage in self.program.stages for body in _bodies(stage))
        found = {id(body.actions): body for body in bodies}.values()  # equal layers share their actions
        return {self.prices.level(one) for body in found for one in body.communications() if one.what in HIDES}

    # one slot

    def _slot(self, at: int, kind: str) -> Pass:
        whole = Cost()
        turns: list[Turn] = []
        for body, times in self.program.stages[at].passes(kind):
            cost = self.prices.body(body.actions).of(kind)
            whole.add(cost, times)
            if body.actions:  # most stages have nothing to do before or after their layers
                turns.append(self._turn(cost, times, self.costs[at]))
        if self.soft:
            turns = self._stretched(turns)
        last, beside = turns, Parts()
        if self.share:
            turns = self._leaving(turns, whole.buckets)
            last = self._last(turns, self.once(at)) if kind in ("B", "W") else turns
            beside = self._behind(whole)
        return Pass(tuple(turns), tuple(last), beside, sum(whole.transfers.values()), whole.receives)

    def _turn(self, cost: Cost, times: int, stage: StageCost) -> Turn:
        parts = _parts(cost)
        launches = stage.forward.launches + stage.backward.launches
        part = cost.launches / launches if launches else 0.0
        parts["host"] += self.trainer.host.device_layer * stage.layers * part
        if not self.share:
            for axis, seconds in self._behind(cost).items():
                parts[axis] += seconds
        device = sum(parts.values())
        taken: Quantity = 0.0  # while a message on the same level is waited for, those for weights stand still
        for level in self._levels:
            taken = at_least(taken, cost.levels.get(level, 0.0))
        turn = Turn(times, parts, device, device - taken, self._host(stage) * part, cost.made)
        if not self.share:
            return turn
        return turn._replace(gather=sum(cost.gathers.values()), sums=sum(cost.sums.values()))

    def _host(self, stage: StageCost) -> Quantity:
        launches = stage.forward.launches + stage.backward.launches
        again = bool(stage.backward.recompute)
        return host_seconds(launches, stage.layers, again, self.setting, self.cluster, self.pipelined)

    def _behind(self, cost: Cost) -> Parts:
        """Messages for weights, by axis."""
        found: Parts = defaultdict(float)
        for by_axis in (cost.gathers, cost.sums):
            for axis, seconds in by_axis.items():
                found[f"exposed.{axis}"] += seconds
        for one in cost.buckets:
            found[f"exposed.{'+'.join(one.axes)}"] += self.prices.message(one)
        return found

    def _stretched(self, turns: list[Turn]) -> list[Turn]:
        """Host and device meet over a slot in a soft maximum: the device takes longer, no launch is waited for."""
        device = sum(turn.device * turn.times for turn in turns)
        host = sum(turn.host * turn.times for turn in turns)
        q = self.trainer.host.sharpness
        more = (device**q + host**q) ** (1 / q) / device - 1 if device else 0.0
        return [_longer(turn, turn.device * more) for turn in turns]

    # sums of gradients

    def _leaving(self, turns: list[Turn], buckets: list[Communicate]) -> list[Turn]:
        """Turns with the sums that leave after each of them; where nothing travels, equal turns stay together."""
        if not buckets and not any(turn.gather or turn.sums for turn in turns):
            return turns
        turns = list(_one_by_one(turns))
        seconds = self._after(turns, buckets)
        return [turn._replace(sums=turn.sums + own) for turn, own in zip(turns, seconds, strict=True)]

    def _last(self, turns: list[Turn], sums: list[Communicate]) -> list[Turn]:
        """The same for sums once a step."""
        if not sums:
            return turns
        turns = list(_one_by_one(turns))
        seconds = self._after(turns, sums)
        return [turn._replace(once=own) for turn, own in zip(turns, seconds, strict=True)]

    def _after(self, turns: Sequence[Turn], sums: Iterable[Communicate]) -> list[Quantity]:
        """Seconds of the sums that may leave after each turn: when it has made as large a part of the gradients.

        Parts go by bytes: messages do not name their layers.
        """
        made = list(accumulate(turn.made for turn in turns))
        found: list[Quantity] = [0.0] * len(turns)
        for one, part in _ready(list(sums)):
            at = bisect_left(made, part * made[-1] * (1 - 1e-9)) if made[-1] else len(made) - 1
            found[at] += self.prices.message(one)
        return found


def _bodies(stage: Stage) -> Iterator[Body]:
    yield from (body for kind in ("F", "B") for body, _ in stage.passes(kind))
    yield stage.finish


def _parts(cost: Cost) -> Parts:
    parts: Parts = defaultdict(float)
    parts["forward"] = cost.forward
    parts["backward"] = cost.input_gradient + cost.weight_gradient
    parts["recompute"] = cost.recompute
    parts["other"] = cost.copies
    for axis, seconds in cost.waits.items():
        parts[f"exposed.{axis}"] += seconds
    return parts


def _longer(turn: Turn, seconds: Quantity) -> Turn:
    parts = {**turn.parts, "host": turn.parts["host"] + seconds}
    return turn._replace(parts=parts, device=turn.device + seconds, room=turn.room + seconds, host=0.0)


def _one_by_one(turns: Iterable[Turn]) -> Iterator[Turn]:
    for turn in turns:
        yield from [turn._replace(times=1)] * turn.times


def _ready(sums: list[Communicate]) -> Iterator[tuple[Communicate, float]]:
    """The part of all gradients that must be there before each of some sums can leave; they come in this order."""
    whole, so_far = Counter[tuple[str, tuple[str, ...]]](), Counter[tuple[str, tuple[str, ...]]]()
    for one in sums:
        whole[one.kind, one.axes] += one.payload
    for one in sums:
        so_far[one.kind, one.axes] += one.payload
        yield one, so_far[one.kind, one.axes] / (whole[one.kind, one.axes] or 1)
