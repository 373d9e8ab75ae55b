"""The best part of a model for an axis that divides images, filters or channels.

Parts of a CNN differ: images are large at its beginning and weights at its end. So an axis may be worth it up to some
layer, or from one on, and cost more than it gains in the rest (`spatial4[conv1..layer2]`, `filter4[layer4..fc]`). The
rest does the same on every rank of the axis, or, where the strategy has it, shares out the samples instead. Every
border between two modules is a choice. They come in the order of a bound, the seconds that the layers of both sides
compute, and each is predicted until the next bound is no better than the best prediction.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from foretell.caches import forgettable
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.oracle.priced_plans import Candidate
from foretell.plan.fitness import fits
from foretell.plan.parts import running_order
from foretell.plan.plan import Plan, part_of
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy
from foretell.program.rank_program import kind_of
from foretell.timeline.result import composed

PRICED = 20
"""Borders of one axis that are predicted at most."""

COARSE = 5
"""Parts of the model after each of which a border is predicted first."""


class BestPart(NamedTuple):
    """The best part that was found for one axis of a plan, and what could be better at most."""

    best: Candidate | None  # None: none fits and takes less than what was asked for
    least_seconds: float  # no other part that begins or ends with the model takes less
    priced: int


def open_axes(plan: Plan) -> list[Strategy]:
    """The axes of a plan that may be for a part of the model, and are for all of it."""
    alone = plan.axis(Pipeline) is None  # a bound for stages would have to know them
    return [axis for axis in plan.axes if alone and axis.parts and axis.ranks > 1 and not part_of(axis)]


def best_part(
    setting: Setting, axis: Strategy, cluster: Cluster, capacity: float, below: float = float("inf")
) -> BestPart:
    """The best part for an axis that fits and takes less than `below`."""
    return _PartSearch(setting, axis, cluster, capacity, below).run()


class ModelPart(NamedTuple):
    """A part up to a module or from one on, and what the rest divides."""

    at: int
    rest: str


@forgettable
@functools.lru_cache(maxsize=64)
def modules(graph: Graph) -> tuple[str, ...]:
    """The modules of a model in running order: `conv1`, `features.3`, `layer1.0`."""
    return tuple(dict.fromkeys(_module(path) for *_, path in running_order(graph) if path))


def _module(path: str) -> str:
    first, *others = path.split(".")
    return f"{first}.{others[0]}" if others and others[0].isdigit() else first


class _PartSearch:
    def __init__(self, setting: Setting, axis: Strategy, cluster: Cluster, capacity: float, below: float) -> None:
        self.setting, self.axis, self.cluster, self.capacity = setting, axis, cluster, capacity
        self.names = modules(setting.graph)
        self.begins = bool(axis.axes()[0].splitting.dim)  # what divides images is for the first layers
        self.rests = ("", "sample") if hasattr(axis, "rest") else ("",)
        self.reached = below
        self.best: Candidate | None = None
        self.over: dict[ModelPart, float] = {}  # seconds above their bounds of those that were predicted

    def run(self) -> BestPart:
        left = {part: self._bound(part) for part in self._parts()}
        while len(self.over) < PRICED:
            left = {part: bound for part, bound in left.items() if bound < self.reached}
            if not left:
                break
            part = min(left, key=lambda part: self._estimate(part, left[part]))
            self._take(part, left.pop(part))
        least = min([bound for bound in left.values() if bound < self.reached], default=self.reached)
        return BestPart(self.best, least, len(self.over))

    def _estimate(self, part: ModelPart, bound: float) -> tuple[float, ModelPart]:
        """What a part probably takes: so much more than its bound as the nearest one that was predicted.

        Some parts far from each other come first, so that something is near.
        """
        near = [other for other in self.over if other.rest == part.rest]
        if part.at % max(1, len(self.names) // COARSE) == 0:
            return 0.0, part
        nearest = min(near, key=lambda other: abs(other.at - part.at), default=None)
        return bound + (self.over[nearest] if nearest else 0.0), part

    def _take(self, part: ModelPart, bound: float) -> None:
        plan = self._with(part)
        if not self._legal(plan):
            return
        made = composed(priced(msgspec.structs.replace(self.setting, plan=plan), self.cluster), self.cluster)
        self.over[part] = made.step_seconds - bound
        if made.memory_bytes <= self.capacity and made.step_seconds < self.reached:
            self.reached = made.step_seconds
            self.best = Candidate.of(plan, made.step_seconds, made.memory_bytes)

    def _parts(self) -> Iterator[ModelPart]:
        inner = range(len(self.names) - 1) if self.begins else range(1, self._last + 1)
        return (ModelPart(at, rest) for rest in self.rests for at in inner)

    def _with(self, part: ModelPart) -> Plan:
        """The plan with an axis for a part."""
        return self._named(*self._ends(part), part.rest)

    def _named(self, first: int, last: int, rest: str = "") -> Plan:
        fields = {"only": f"{self.names[first]}..{self.names[last]}"} | ({"rest": rest} if rest else {})
        other = msgspec.structs.replace(self.axis, **fields)
        axes = tuple(other if axis is self.axis else axis for axis in self.setting.plan.axes)
        return msgspec.structs.replace(self.setting.plan, axes=axes)

    def _ends(self, part: ModelPart) -> tuple[int, int]:
        """The first and the last module of a part."""
        return (0, part.at) if self.begins else (part.at, max(part.at, self._last))

    @functools.cached_property
    def _last(self) -> int:
        """The last module that a part may have: the outputs of a head may be fewer than the ranks."""
        last = len(self.names) - 1
        if self.begins:
            return last
        ends = (end for end in range(last, 0, -1) if self._legal(self._named(1, end)))
        return next(ends, last)

    def _legal(self, plan: Plan) -> bool:
        return fits(msgspec.structs.replace(self.setting, plan=plan), self.cluster)

    # bounds

    def _bound(self, part: ModelPart) -> float:
        """Seconds of both sides' layers, of the sums that these do not hide, and of the end of the step, at least."""
        inside, outside = self._every, self._least[part.rest]
        first, last = self._ends(part)
        forward = backward = 0.0
        for (begin, end), own, other in zip(self._spans, inside.layers, outside.layers, strict=True):
            if first <= begin and end <= last:
                found = own
            elif end < first or last < begin:
                found = other
            else:  # the border may go through it
                found = min(own[0], other[0]), min(own[1], other[1])
            forward, backward = forward + found[0], backward + found[1]
        left = max(0.0, min(inside.sums, outside.sums) - inside.share * backward)
        count = self.setting.plan.microbatches
        return count * (forward + backward) + left + min(inside.finish, outside.finish)

    @functools.cached_property
    def _every(self) -> _Side:
        """Where the part is the whole model."""
        return _side(self._priced(ModelPart(len(self.names) - 1 if self.begins else 0, "")))

    @functools.cached_property
    def _least(self) -> dict[str, _Side]:
        """Where it is one module, for each way to treat the rest."""
        at = 0 if self.begins else len(self.names) - 1
        return {rest: _side(self._priced(ModelPart(at, rest))) for rest in self.rests}

    def _priced(self, part: ModelPart) -> PricedProgram:
        return priced(msgspec.structs.replace(self.setting, plan=self._with(part)), self.cluster)

    @functools.cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """The modules that each layer has, from the first to the last."""
        place = {name: at for at, name in enumerate(self.names)}
        program = self._priced(ModelPart(0, "")).program
        spans: list[tuple[int, int]] = []
        for run in program.partition.runs(0):
            paths = (node.path for node in program.graph.blocks[run.block].nodes[run.start : run.stop])
            held = [place[_module(path)] for path in paths if path]
            spans.append((min(held, default=0), max(held, default=len(self.names) - 1)))
        return spans


class _Side(NamedTuple):
    """Seconds of a plan with an axis for all of the model or for nearly none of it."""

    layers: list[tuple[float, float]]  # of each, forward and backward
    sums: float  # of gradients, once a step
    share: float  # of a link's speed that is left for these
    finish: float


def _side(plan: PricedProgram) -> _Side:
    devices = (plan.kinds[kind_of(run)].device for run in plan.program.partition.runs(0))
    (care,) = plan.traffic
    return _Side([(one[0], one[1]) for one in devices], sum(care.once), plan.overlap, sum(care.finish.values()))
