"""What a range of layers costs as a stage of a pipeline, for every range that a search asks about.

A stage's seconds and bytes depend on its layers, on what crosses its ends, and on whether it is the first or the last,
not on how the rest of the model is cut. So each range is priced inside some plan that has it as a stage, by the code
that predicts that plan; ranges that are alike are priced once.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

import msgspec

from foretell.cost.layer_cost import layer_cost
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.cluster import Cluster
from foretell.model.layers import EqualLayers, LayerPiece, runs
from foretell.plan.plan import Plan
from foretell.plan.policies.recompute import Recompute
from foretell.plan.schedule import SLOT_KINDS
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.program.boundary import BoundaryCrossing
from foretell.program.partition import ModelParts, model_parts
from foretell.program.rank_program import BlockKind, kind_of
from foretell.timeline.engine import SEGMENT, kernels
from foretell.timeline.plan_table import PlanTable

Split: TypeAlias = tuple[int, ...]
"""Layers of each part of the model, first to last."""


HALVINGS = 20
"""Of the range in which the most even split is looked for: to a millionth of the model's seconds."""


class Range(NamedTuple):
    """Layers from one on, up to another."""

    first: int
    stop: int


class StageFigures(NamedTuple):
    """One stage. Seconds are of one micro-batch, but the last."""

    slots: dict[str, float]  # at least, by their kind
    busy: float  # of its rank in all of them, at least
    launched: float  # of its rank's host, which may be ahead while the device is busy with another stage
    forward: float  # from when its input has come until its output is there
    backward: float  # the same of gradients
    sent_forward: float
    sent_back: float
    finish: float  # after its last slot, once a step
    memory: tuple[float, ...]  # bytes of a device of each pipeline rank, if this is the only stage there

    @property
    def through(self) -> float:
        """Seconds that it takes to go forward through this stage to the next, and back to the one before."""
        return self.forward + self.sent_forward + self.backward + self.sent_back


def with_split(plan: Plan, split: Split) -> Plan:
    """The plan with so many layers on each stage.

    None: by the trainer's rule, which is all that leaves a stage without layers in a search.
    """
    said = () if 0 in split else split
    axes = (msgspec.structs.replace(axis, split=said) if isinstance(axis, Pipeline) else axis for axis in plan.axes)
    return msgspec.structs.replace(plan, axes=tuple(axes))


def ranges(split: Split) -> tuple[Range, ...]:
    """The layers of each part."""
    return tuple(Range(*ends) for ends in pairwise((0, *accumulate(split))))


class StagesByLayers:
    """Figures of the stages that a plan's pipeline may have, by the layers on them."""

    def __init__(self, setting: Setting, cluster: Cluster) -> None:
        self.setting, self.cluster = setting, cluster
        self.priced = 0  # plans so far, to get to know their stages
        self.usual = self._priced(())
        self.partition = self.usual.program.partition
        self.parts = len(self.partition.row.parts)
        self.split: Split = tuple(self._layers(part) for part in self.partition.row.parts)
        self.layers = sum(self.split)
        self._known: dict[Hashable, StageFigures] = {}
        self._found: dict[tuple[tuple[bool, bool], Range], StageFigures] = {}
        self._learn(self.usual, self.split)

    @staticmethod
    def _layers(part: Iterable[LayerPiece]) -> int:
        return len({piece.layer for piece in part if piece.layer})

    def _priced(self, split: Split) -> PricedProgram:
        plan = with_split(self.setting.plan, split)
        self.priced += 1
        return priced(msgspec.structs.replace(self.setting, plan=plan), self.cluster)

    def of(self, part: int, own: Range) -> StageFigures:
        """The figures of a stage with these layers, as this part of the model."""
        place = (self._ends[part], own)
        if place not in self._found:
            key = self._key(part, own)
            if key not in self._known:
                split = self._around(part, own)
                self._learn(self._priced(split), split)
            self._found[place] = self._known[key]
        return self._found[place]

    def at_least(self, own: Range) -> float:
        """Seconds that a micro-batch computes in these layers, before they are priced as a stage."""
        return self._computed[own.stop] - self._computed[own.first]

    def alone_at_least(self, own: Range) -> float:
        """Seconds of a rank that has nothing else to do: its device's, or its host's for the launches."""
        return max(self.at_least(own), self._launched[own.stop] - self._launched[own.first])

    @functools.cached_property
    def _computed(self) -> list[float]:
        """Seconds of all layers before each; what lies at the ends goes with the first and the last one."""
        return [0.0, *accumulate(sum(self._pass(run, "alone") for run in part) for part in self._singles.runs)]

    @functools.cached_property
    def _launched(self) -> list[float]:
        host = self.usual.prices.trainer.host.launch
        return [
            0.0,
            *accumulate(sum(host * self._pass(run, "launches") for run in part) for part in self._singles.runs),
        ]

    def _pass(self, run: EqualLayers, figure: str) -> float:
        """A figure of both passes."""
        cheapest = kind_of(run)._replace(spared=self.setting.plan.policy(Recompute).spares is not None)
        cost = layer_cost(self.usual.program.rank_program, cheapest, self.usual.prices)
        forward, both, inputs, weights = getattr(cost, figure)
        splits = self.partition.schedule.splits_backward
        return run.times * (forward + (min(both, inputs + weights) if splits else both))

    def shared(self) -> Split:
        """Parts that end where equal shares of the seconds do, or as near to it as a layer ends."""
        whole, stops = self._computed[-1], [0]
        for part in range(1, self.parts):
            first, last = stops[-1] + 1, self.layers - (self.parts - part)
            share = whole * part / self.parts
            stops.append(min(range(first, last + 1), key=lambda stop: abs(self._computed[stop] - share)))
        return tuple(stop - first for first, stop in pairwise((*stops, self.layers)))

    def balanced(self) -> Split:
        """The split whose largest part computes least, as far as halving finds it."""
        low, high = 0.0, self._computed[-1]
        found = self.split
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            filled = self._filled(middle)
            low, high, found = (low, middle, filled) if filled else (middle, high, found)
        return found

    def _filled(self, most: float) -> Split:
        """Parts filled from the first on, up to so many seconds; empty where some layers are left."""
        bounds = [0]
        for part in range(self.parts):
            stop, last = bounds[-1] + 1, self.layers - (self.parts - part - 1)
            while stop < last and self._computed[stop + 1] - self._computed[bounds[-1]] <= most:
                stop += 1
            bounds.append(stop)
        fits = bounds[-1] == self.layers and all(self.at_least(own) <= most for own in map(Range, bounds, bounds[1:]))
        return tuple(stop - first for first, stop in pairwise(bounds)) if fits else ()

    # what is alike

    @functools.cached_property
    def _singles(self) -> ModelParts:
        """The model cut after each layer."""
        return model_parts(self.partition.graph, self.layers, (1,) * self.layers, "even")

    @property
    def trained_through(self) -> bool:
        """Whether gradients go back wherever the model may be cut."""
        return all(any(one.trained for one in crossed) for crossed in self._singles.crossings[1:])

    @functools.cached_property
    def _ends(self) -> list[tuple[bool, bool]]:
        """For each part whether other ranks have the parts before and after it."""
        stages = map(self.partition.part.index, range(self.parts))
        return [(self.partition.receives(at) >= 0, self.partition.sends(at) >= 0) for at in stages]

    def _key(self, part: int, own: Range) -> Hashable:
        """All that the figures of a stage depend on, in one plan."""
        single = self._singles
        pieces = tuple(piece for part in single.parts[own.first : own.stop] for piece in part)
        sent = single.crossings[own.stop] if own.stop < self.layers else ()
        layers = tuple(self._times(run) for run in runs(pieces))
        ends = (own.first == 0, own.stop == self.layers, *self._ends[part])
        return layers, ends, _reads(single.crossings[own.first]), _reads(sent)

    def _times(self, run: EqualLayers) -> tuple[BlockKind, int, bool, bool]:
        last = run.first + run.times == self.partition.graph.blocks[run.block].times
        return kind_of(run), run.times, run.first == 0, last

    def _around(self, part: int, own: Range) -> Split:
        """A split with these layers as a part, and before and after it parts of different lengths."""
        before, after = _shares(own.first, part), _shares(self.layers - own.stop, self.parts - part - 1)
        return (*before, own.stop - own.first, *after)

    # what is priced

    def _learn(self, plan: PricedProgram, split: Split) -> None:
        """Take up the stages of a priced plan."""
        table = PlanTable(self.cluster)
        table.add(plan)
        found: dict[Hashable, int] = {}
        filled = ((part, own) for part, own in enumerate(ranges(split)) if own.first < own.stop)
        for part, own in filled:
            key = self._key(part, own)
            if key not in self._known:
                found[key] = plan.stages[self.partition.part.index(part)]
        rows = [table.add(plan, (signature,) * len(plan.stages)) for signature in found.values()]
        tables, plans, engine = table.tables(compiled=False), table.plans(compiled=False), kernels(fast=False)
        segments, begin, end = engine.all_segments(tables, plans, 0)
        constants = plan.constants
        for (key, shape), at in zip(found.items(), rows, strict=True):
            at_kind = {kind: shape * 8 + number for number, kind in enumerate(SLOT_KINDS)}
            beside = {kind: _rows(plan, shape, number) for number, kind in enumerate(SLOT_KINDS)}
            slots = {
                kind: _slot(segments, begin[place], end[place]).without(beside[kind]) for kind, place in at_kind.items()
            }
            held = (engine.rank_memory(tables, plans, at, rank)[0] for rank in range(self.partition.ranks))
            memory = tuple(one * constants.reserved + constants.context for one in held)
            self._known[key] = _figures(plan, shape, slots, memory)


def _figures(plan: PricedProgram, shape: int, slots: dict[str, _Slot], memory: tuple[float, ...]) -> StageFigures:
    crossed, sends = plan.signatures[shape], plan.sends[shape]
    # who receives has waited for it, so that host and device begin together
    met = {"F": bool(crossed.received), "B": crossed.gets_back, "I": crossed.gets_back, "W": False}
    least = {kind: slot.met if met[kind] else slot.device for kind, slot in slots.items()}
    forward, back, launched = least["F"], least["B"], slots["F"].host + slots["B"].host
    if plan.program.schedule.splits_backward:  # a rank may have both
        back = min(back, least["I"] + least["W"])
        launched = slots["F"].host + min(slots["B"].host, slots["I"].host + slots["W"].host)
    return StageFigures(
        least,
        forward + back,
        launched,
        slots["F"].met,
        least["I" if plan.program.schedule.splits_backward else "B"],
        float(sends.send_forward),
        float(sends.send_back),
        sum(plan.traffic[shape].finish.values()),
        memory,
    )


class _Slot(NamedTuple):
    """Seconds of a slot: of its device, of its host, and until both are done if they begin together."""

    device: float
    host: float
    met: float

    def without(self, beside: float) -> _Slot:
        """Less what may run beside another pass."""
        device = self.device - beside
        return _Slot(device, self.host, max(self.met - beside, self.host)) if beside else self


def _rows(plan: PricedProgram, shape: int, number: int) -> float:
    """Seconds of experts' rows of a kind of slot that may run beside another pass."""
    return sum(float(plan.kinds[kind].rows[number]) * times for kind, times, *_ in plan.signatures[shape].layers)


def _slot(segments: Sequence[float], begin: int, end: int) -> _Slot:
    device = host = met = 0.0
    for segment in range(begin, end, SEGMENT):
        device += segments[segment]
        host += segments[segment + 1]
        met = max(met + segments[segment], host)
    return _Slot(device, host, met)


def _shares(layers: int, parts: int) -> Iterator[int]:
    """Parts that get longer one by one, around equal ones: others will be asked about soon."""
    each, more = divmod(layers, parts) if parts else (0, 0)
    step = [at - parts // 2 for at in range(parts)]
    if parts % 2 == 0:
        step = [at + (at >= 0) for at in step]
    steep = min(1, (each - 1) // max(1, parts // 2))
    return (each + steep * step[part] + (part < more) for part in range(parts))


def _reads(crossings: Iterable[BoundaryCrossing]) -> tuple[tuple[int, int, bool], ...]:
    return tuple((*one.read, one.trained) for one in crossings)
