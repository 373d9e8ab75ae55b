"""The tables that the recurrence reads: figures of layers, stages, weights and orders, and rows of plans.

Each table holds the rows of one thing that a plan's time or memory depends on. Plans that have it in common share the
row: a search adds each row once, and a plan is a row of places.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from foretell.cost.care import CareFigures
from foretell.cost.host import AGAIN
from foretell.cost.layers import LayerFigures
from foretell.plan.trainer import Host
from foretell.program.holding import Passes
from foretell.timeline.order import Moments, Order, Played, Row, forward, is_array
from foretell.units import Quantity


class Tables(NamedTuple):
    """Two rows of numbers, and where in them each column begins.

    A column whose name ends in `_at` has for each row where its part of the columns after it begins.
    """

    f: Any  # real numbers
    i: Any  # whole numbers, and yes and no
    levels: int  # of the cluster
    # local programs: kinds of layers, and of each four kinds of slots
    local_at: int
    device: int
    launches: int
    waits: int  # by level
    again: int
    # cuts of a model into stages: shapes, and of each runs of equal layers ("spans")
    cut_at: int
    span_at: int
    span_kind: int
    span_times: int
    layers: int
    gets_forward: int
    gets_back: int
    stage_at: int
    stage_shape: int
    # seconds of sending what crosses between stages, by shape
    sent_forward: int
    sent_back: int
    # seconds after a rank asked for what crosses, if it has to ask, by the shape that receives
    asked_forward: int
    asked_back: int
    # what a micro-batch holds, by shape
    kept: int
    forward_peak: int
    backward_peak: int
    making_peak: int
    # care of weights, by shape
    care_at: int
    care_inline: int
    taken: int  # by level
    cared: int
    enter_forward: int
    enter_back: int
    leave_back: int
    enter_copy: int
    leave_copy: int
    slot_update: int
    buckets_all: int
    once_all: int
    tied: int
    finish: int
    resting: int
    gradients: int  # of what rests
    parameters: int  # that are trained
    care_span_at: int
    gather_forward: int
    gather_back: int
    sums: int
    copy_forward: int
    copy_back: int
    care_turn_at: int
    buckets: int
    once: int
    # orders of slots
    order_ranks: int
    order_at: int
    order_places: int
    order_shared: int
    slot_rank: int
    slot_kind: int
    slot_stage: int
    slot_takes: int
    slot_puts: int
    slot_last: int
    slot_tail: int
    tail_at: int
    tail_slot: int
    rank_at: int
    held_at: int
    held: int
    moment_at: int
    moment_stage: int
    moment_forward: int
    flying_at: int
    flying: int
    # manners of launching, by trainer and execution
    host_launch: int
    host_layer: int
    host_again: int
    host_growth: int
    host_microbatch: int
    host_floor: int
    device_layer: int
    sharpness: int
    prefetch: int


class Plans(NamedTuple):
    """The same, one row a plan: places in the tables, and figures of its own."""

    f: Any
    i: Any
    local: int
    cut: int
    sends: int
    holds: int
    care: int
    manner: int
    order: int
    moments: int  # in which ranks may hold most: the first rank's
    before: int  # the order that is a round shorter; -1: nothing is left out
    rounds: int  # that are left out
    splits: int  # whether backward passes are in two parts
    share: int  # how fast messages for weights go while a rank computes
    made: int  # whether a step of one micro-batch makes its gradients in the backward pass
    # bytes for each parameter
    copies: int  # all the time
    fresh: int  # in a backward pass
    cached: int  # while working
    gathered: int  # after the update
    # other bytes
    workspace: int
    streams: int
    limit: int  # in tensors
    reserved: int  # a factor
    context: int


REAL = frozenset(
    (
        "device",
        "launches",
        "waits",
        "sent_forward",
        "sent_back",
        "asked_forward",
        "asked_back",
        "kept",
        "forward_peak",
        "backward_peak",
        "making_peak",
        "enter_forward",
        "enter_back",
        "leave_back",
        "enter_copy",
        "leave_copy",
        "slot_update",
        "buckets_all",
        "once_all",
        "tied",
        "finish",
        "resting",
        "gradients",
        "parameters",
        "gather_forward",
        "gather_back",
        "sums",
        "copy_forward",
        "copy_back",
        "buckets",
        "once",
        "flying",
        "host_launch",
        "host_layer",
        "host_again",
        "host_growth",
        "host_microbatch",
        "host_floor",
        "device_layer",
        "sharpness",
        "share",
        "made",
        "copies",
        "fresh",
        "cached",
        "gathered",
        "workspace",
        "streams",
        "limit",
        "reserved",
        "context",
    )
)
"""Columns of real numbers."""

COLUMNS = tuple(name for name in Tables._fields if name not in ("f", "i", "levels"))
PLAN_COLUMNS = tuple(name for name in Plans._fields if name not in ("f", "i"))


class Sends(NamedTuple):
    """Seconds of sending what crosses the ends of a stage, forward and back; and those that pass at least after its
    rank asks for what it receives from before and from behind."""

    sent_forward: Quantity
    sent_back: Quantity
    asked_forward: Quantity
    asked_back: Quantity


CutShape: TypeAlias = tuple[Sequence[tuple[int, int]], int, bool, bool]
"""Kinds of layers with how often in a row, layers in all, and whether it receives from the rank before and after."""


class CareRow(NamedTuple):
    """What stands in the tables of the care of a shape's weights: some figures of it, or one for each run or turn."""

    cared: bool
    enter_forward: float
    enter_back: float
    leave_back: float
    enter_copy: float
    leave_copy: float
    slot_update: float
    tied: float
    buckets_all: float
    once_all: float
    finish: float
    resting: float
    gradients: float
    parameters: float
    gather_forward: tuple[float, ...]
    gather_back: tuple[float, ...]
    sums: tuple[float, ...]
    copy_forward: tuple[float, ...]
    copy_back: tuple[float, ...]
    buckets: tuple[float, ...]
    once: tuple[float, ...]

    @classmethod
    def of(cls, one: CareFigures) -> CareRow:
        rests = one.resting
        return cls(
            one.cared,
            one.enter_forward,
            one.enter_back,
            one.leave_back,
            one.enter_copy,
            one.leave_copy,
            one.slot_update,
            one.tied,
            sum(one.buckets),
            sum(one.once),
            sum(one.finish.values()),
            float(rests.weights + rests.gradients + rests.states),
            float(rests.gradients),
            float(rests.trained),
            one.gather_forward,
            one.gather_back,
            one.sums,
            one.copy_forward,
            one.copy_back,
            one.buckets,
            one.once,
        )


class Builder:
    """Adds rows; what is held, cares, orders and manners that are there already are not added again."""

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = levels
        self.columns: dict[str, array[Any]] = {name: array("d" if name in REAL else "q") for name in COLUMNS}
        for name in ("cut_at", "span_at", "order_at", "tail_at", "held_at", "moment_at"):
            self.columns[name].append(0)  # these have one more: where the last one ends
        self.known: dict[Hashable, int] = {}

    def _new(self, key: Hashable, place: int) -> bool:
        if key in self.known:
            return False
        self.known[key] = place
        return True

    def local(self, kinds: Sequence[LayerFigures], samples: int = 0) -> int:
        """Kinds of layers of a local program; with arrays for so many numbers of samples, a row for each in turn."""
        to, row = self.columns, len(self.columns["local_at"])
        first = len(to["again"])
        to["local_at"].extend(range(first, first + len(kinds) * (samples or 1), len(kinds)))
        to["again"].extend([one.again for one in kinds] * (samples or 1))
        for name in ("device", "launches"):
            self._extend(name, [figure for one in kinds for figure in getattr(one, name)], samples)
        self._extend("waits", [seconds for one in kinds for slot in one.waits for seconds in slot], samples)
        return row

    def _extend(self, name: str, figures: Sequence[Quantity], samples: int) -> None:
        self.columns[name].frombytes(_written(figures, samples))

    def cut(self, shapes: Sequence[CutShape], stages: Sequence[int]) -> int:
        """A cut of a model: its shapes, and which of them each stage has."""
        to, row = self.columns, len(self.columns["stage_at"])
        to["stage_at"].append(len(to["stage_shape"]))
        to["stage_shape"].extend(stages)
        for spans, layers, gets_forward, gets_back in shapes:
            for kind, times in spans:
                to["span_kind"].append(kind)
                to["span_times"].append(times)
            to["span_at"].append(len(to["span_kind"]))
            to["layers"].append(layers)
            to["gets_forward"].append(gets_forward)
            to["gets_back"].append(gets_back)
        to["cut_at"].append(len(to["layers"]))
        return row

    def sends(self, rows: Sequence[Sends], samples: int = 0) -> int:
        """For each shape seconds of sending forward and back, and of asking for what comes."""
        row = len(self.columns["sent_forward"])
        for name in Sends._fields:
            self._extend(name, [getattr(one, name) for one in rows], samples)
        return row

    def holds(self, *parts: tuple[Sequence[Passes], int]) -> int:
        """For each shape what a micro-batch holds, and for how many numbers of samples, one part after the other."""
        each = [[_written(figures, samples) for figures in zip(*rows, strict=True)] for rows, samples in parts]
        sizes = tuple(b"".join(own) for own in zip(*each, strict=True))
        key = ("holds", tuple((len(rows), samples) for rows, samples in parts), sizes)
        if self._new(key, len(self.columns["kept"])):
            for name, own in zip(Passes._fields, sizes, strict=True):
                self.columns[name].frombytes(own)
        return self.known[key]

    def care(self, shapes: Sequence[CareFigures]) -> int:
        """The care of the weights of each shape."""
        taken = {level for one in shapes for level in one.taken}
        levels = tuple(level in taken for level in self.levels)
        rows = tuple(map(CareRow.of, shapes))
        if self._new(("care", levels, rows), len(self.columns["care_at"])):
            self.columns["care_at"].append(len(self.columns["cared"]))
            self.columns["care_inline"].append(any(one.cared for one in rows))
            self.columns["taken"].extend(levels)
            for one in rows:
                self._care(one)
        return self.known["care", levels, rows]

    def _care(self, one: CareRow) -> None:
        to = self.columns
        to["care_span_at"].append(len(to["sums"]))
        to["care_turn_at"].append(len(to["once"]))
        for name, figure in zip(CareRow._fields, one, strict=True):
            if isinstance(figure, tuple):
                to[name].extend(figure)
            else:
                to[name].append(figure)

    def played(self, played: Played) -> dict[str, int]:
        """What a plan's row has of a step: its order and moments, the order a round shorter, and rounds to come."""
        order = self._order(played.key, played.order, 0)
        before = -1
        if played.before is not None:
            before = self._order((played.key, "before"), played.before, played.order.shared(played.before))
        moments = self._moments(played.flying, played.moments)
        return {"order": order, "moments": moments, "before": before, "rounds": played.rounds}

    def _order(self, key: Hashable, found: Order, shared: int) -> int:
        """An order of slots; how many it begins with are `shared` with the order a round longer: these stand there."""
        to = self.columns
        if self._new(("order", key), len(to["order_ranks"])):
            first = len(to["slot_rank"])
            to["order_ranks"].append(found.ranks)
            to["order_places"].append(found.places)
            to["order_shared"].append(shared)
            for name in ("rank", "kind", "stage", "takes", "puts", "last", "tail"):
                self._whole(f"slot_{name}", getattr(found, name)[shared:])
            self._whole("tail_slot", found.tails, first - shared)
            to["order_at"].append(len(to["slot_rank"]))
            to["tail_at"].append(len(to["tail_slot"]))
            to["rank_at"].append(len(to["held_at"]) - 1)
            for held in found.held:
                to["held"].extend(held)
                to["held_at"].append(len(to["held"]))
        return self.known["order", key]

    def _moments(self, key: Hashable, moments: Moments) -> int:
        """The moments of each rank in which it may hold most."""
        to = self.columns
        if self._new(("moments", key), len(to["moment_at"]) - 1):
            before, begun = len(to["moment_stage"]), len(to["flying"])
            to["flying_at"].extend(range(begun, begun + len(moments.flying), moments.width))
            self._whole("moment_stage", moments.stage)
            self._whole("moment_forward", forward(moments.kind))
            self._whole("flying", moments.flying)
            self._whole("moment_at", moments.begin[1:], before)
        return self.known["moments", key]

    def _whole(self, name: str, values: Row, later: int = 0) -> None:
        """Write whole numbers down, of a list or an array; places in rows that begin so much `later`."""
        to = self.columns[name]
        if is_array(values):
            to.frombytes((values + later).astype(float if name in REAL else int).tobytes())
        else:
            to.extend(value + later for value in values)

    def manner(self, key: Hashable, host: Host, ranks: int, across: bool, prefetch: int) -> int:
        """How a trainer's host launches with so many tensor ranks; `across`: stages lie on several nodes."""
        to = self.columns
        if self._new(("manner", key), len(to["host_launch"])):
            to["host_launch"].append(host.launch)
            to["host_layer"].append(host.layer)
            to["host_again"].append(1.0 if host.layer_recomputes else AGAIN)
            to["host_growth"].append(1 + host.tensor_growth * math.log2(ranks))
            to["host_microbatch"].append(host.microbatch)
            floor = host.floor + host.floor_tensor * ranks + host.floor_pair * ranks**2
            to["host_floor"].append(floor if across else 0.0)
            to["device_layer"].append(host.device_layer)
            to["sharpness"].append(host.sharpness if math.isfinite(host.sharpness) else 0.0)
            to["prefetch"].append(prefetch)
        return self.known["manner", key]

    def lists(self) -> Tables:
        """The tables for Python."""
        places, real, whole = joined(self.columns)
        return Tables(levels=len(self.levels), f=real.tolist(), i=whole.tolist(), **places)

    def arrays(self) -> Tables:
        """The tables for a compiler."""
        places, real, whole = joined(self.columns)
        return Tables(levels=len(self.levels), f=_readable(real), i=_readable(whole), **places)


def joined(columns: Mapping[str, Any]) -> tuple[dict[str, int], array[float], array[int]]:
    """Columns, lists or arrays, one after the other, and where each begins."""
    places: dict[str, int] = {}
    real, whole = array("d"), array("q")
    for name, values in columns.items():
        to: array[Any] = real if name in REAL else whole
        places[name] = len(to)
        if hasattr(values, "astype"):
            to.frombytes(values.astype(float if to is real else int).tobytes())
        else:
            to.extend(values)
    return places, real, whole


def plan_rows(columns: Mapping[str, Any], compiled: bool) -> Plans:
    """The rows of plans, for Python or for a compiler."""
    places, real, whole = joined(columns)
    if compiled:
        return Plans(f=_readable(real), i=_readable(whole), **places)
    return Plans(f=real.tolist(), i=whole.tolist(), **places)


def plan_arrays(columns: Mapping[str, Any], order: Any) -> Plans:
    """The rows of plans for a compiler, of columns that are arrays, in this order."""
    import numpy

    size = len(order)
    names = {wanted: [name for name in columns if (name in REAL) is wanted] for wanted in (True, False)}
    found = {kind: numpy.empty((len(names[kind]), size), float if kind else numpy.int64) for kind in names}
    for kind, table in found.items():
        for name, row in zip(names[kind], table, strict=True):
            numpy.take(columns[name], order, out=row, mode="clip")  # the only mode that writes there at once
    places = {name: at * size for own in names.values() for at, name in enumerate(own)}
    return Plans(f=found[True].ravel(), i=found[False].ravel(), **places)


def _readable(values: array[Any]) -> Any:
    import numpy

    return numpy.frombuffer(values, dtype=numpy.float64 if values.typecode == "d" else numpy.int64)


def _written(figures: Sequence[Quantity], samples: int) -> bytes:
    """Figures as they stand in a table; of arrays all those of the first number of samples, then of the next."""
    if not samples:
        return array("d", figures).tobytes()
    import numpy

    found = numpy.empty((samples, len(figures)))
    for at, figure in enumerate(figures):
        found[:, at] = figure
    return found.tobytes()
