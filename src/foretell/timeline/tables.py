"""The tables that the engine's kernels read: each row is written once, and plans that have it in common share it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias

from foretell.cost.host import AGAIN
from foretell.cost.layer_cost import LayerCost
from foretell.cost.price import Sends
from foretell.cost.weight_traffic import WeightTrafficCost
from foretell.plan.trainer import Host
from foretell.program.activation_memory import StagePeaks
from foretell.timeline.columns import COLUMNS, REAL, Tables, joined, readable
from foretell.timeline.unroll import Moments, Row, SlotOrder, UnrolledSchedule, forward, is_array
from foretell.units import Quantity


class SignatureRow(NamedTuple):
    """A stage signature as it stands in the tables."""

    runs: Sequence[tuple[int, int]]  # kinds of layers with how often in a row
    layers: int
    receives_forward: bool  # from the rank before
    receives_back: bool


class TrafficRow(NamedTuple):
    """The weight traffic of a stage signature as it stands in the tables: a figure, or one for each run or segment."""

    has_traffic: bool
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
    persistent: float
    weights: float
    gradients: float
    states: float
    trained: float
    gather_forward: tuple[float, ...]
    gather_back: tuple[float, ...]
    reduce: tuple[float, ...]
    copy_forward: tuple[float, ...]
    copy_back: tuple[float, ...]
    unit_launches: tuple[float, ...]
    buckets: tuple[float, ...]
    once: tuple[float, ...]

    @classmethod
    def of(cls, cost: WeightTrafficCost) -> TrafficRow:
        persistent = cost.resting
        return cls(
            cost.cared,
            cost.enter_forward,
            cost.enter_back,
            cost.leave_back,
            cost.enter_copy,
            cost.leave_copy,
            cost.slot_update,
            cost.tied,
            sum(cost.buckets),
            sum(cost.once),
            sum(cost.finish.values()),
            float(persistent.weights + persistent.gradients + persistent.states),
            float(persistent.weights),
            float(persistent.gradients),
            float(persistent.states),
            float(persistent.trained),
            cost.gather_forward,
            cost.gather_back,
            cost.sums,
            cost.copy_forward,
            cost.copy_back,
            cost.unit_launches,
            cost.buckets,
            cost.once,
        )


PeakRows: TypeAlias = tuple[Sequence[StagePeaks], int]
"""For each stage signature what a micro-batch holds, and for how many numbers of samples; 0: for one alone."""


class TableBuilder:
    """Adds rows; peaks, traffic, orders and launch profiles that are there already are not added again."""

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = levels
        self.columns: dict[str, array[Any]] = {name: array("d" if name in REAL else "q") for name in COLUMNS}
        for name in ("partition_at", "run_at", "order_at", "tail_at", "held_at", "moment_at"):
            self.columns[name].append(0)  # these have one more: where the last one ends
        self.known: dict[Hashable, int] = {}

    def _new(self, key: Hashable, place: int) -> bool:
        if key in self.known:
            return False
        self.known[key] = place
        return True

    def program(self, kinds: Sequence[LayerCost], samples: int = 0) -> int:
        """Kinds of layers of a rank program; with arrays for so many numbers of samples, a row for each in turn."""
        to, row = self.columns, len(self.columns["program_at"])
        first = len(to["recomputes"])
        to["program_at"].extend(range(first, first + len(kinds) * (samples or 1), len(kinds)))
        to["recomputes"].extend([kind.again for kind in kinds] * (samples or 1))
        for name in ("device", "launches", "rows"):
            self._extend(name, [figure for kind in kinds for figure in getattr(kind, name)], samples)
        self._extend("waits", [seconds for kind in kinds for slot in kind.waits for seconds in slot], samples)
        return row

    def _extend(self, name: str, figures: Sequence[Quantity], samples: int) -> None:
        self.columns[name].frombytes(_written(figures, samples))

    def partition(self, signatures: Sequence[SignatureRow], stages: Sequence[int]) -> int:
        """A partition of a model: its stage signatures, and which of them each stage has."""
        to, row = self.columns, len(self.columns["stage_at"])
        to["stage_at"].append(len(to["stage_signature"]))
        to["stage_signature"].extend(stages)
        for signature in signatures:
            for kind, times in signature.runs:
                to["run_kind"].append(kind)
                to["run_times"].append(times)
            to["run_at"].append(len(to["run_kind"]))
            for name in ("layers", "receives_forward", "receives_back"):
                to[name].append(getattr(signature, name))
        to["partition_at"].append(len(to["layers"]))
        return row

    def sends(self, rows: Sequence[Sends], samples: int = 0) -> int:
        """For each stage signature seconds of sending forward and back, and of requesting what comes."""
        row = len(self.columns["send_forward"])
        for name in Sends._fields:
            self._extend(name, [getattr(own, name) for own in rows], samples)
        return row

    def peaks(self, *parts: PeakRows) -> int:
        """What micro-batches hold, one part after the other."""
        each = [[_written(figures, samples) for figures in zip(*rows, strict=True)] for rows, samples in parts]
        sizes = tuple(b"".join(own) for own in zip(*each, strict=True))
        key = ("peaks", tuple((len(rows), samples) for rows, samples in parts), sizes)
        if self._new(key, len(self.columns["kept"])):
            for name, own in zip(StagePeaks._fields, sizes, strict=True):
                self.columns[name].frombytes(own)
        return self.known[key]

    def traffic(self, costs: Sequence[WeightTrafficCost]) -> int:
        """The weight traffic of each stage signature."""
        to, busy = self.columns, {level for cost in costs for level in cost.taken}
        levels = tuple(level in busy for level in self.levels)
        rows = tuple(map(TrafficRow.of, costs))
        key = ("traffic", levels, rows)
        if self._new(key, len(to["traffic_at"])):
            to["traffic_at"].append(len(to["has_traffic"]))
            to["traffic_inline"].append(any(row.has_traffic for row in rows))
            to["level_busy"].extend(levels)
            for row in rows:
                self._traffic(row)
        return self.known[key]

    def _traffic(self, row: TrafficRow) -> None:
        to = self.columns
        to["traffic_run_at"].append(len(to["reduce"]))
        to["traffic_segment_at"].append(len(to["once"]))
        for name, figure in zip(TrafficRow._fields, row, strict=True):
            if isinstance(figure, tuple):
                to[name].extend(figure)
            else:
                to[name].append(figure)

    def unrolled(self, steps: UnrolledSchedule) -> dict[str, int]:
        """What a plan's row has of a step: its order and moments, the order a round shorter, and rounds to come."""
        order = self._order(steps.key, steps.order, 0)
        shorter = -1
        if steps.before is not None:
            shorter = self._order((steps.key, "shorter"), steps.before, steps.order.shared(steps.before))
        moments = self._moments(steps.flying, steps.moments)
        return {"order": order, "moments": moments, "shorter_order": shorter, "rounds": steps.rounds}

    def _order(self, key: Hashable, order: SlotOrder, shared: int) -> int:
        """An order of slots; how many it begins with are `shared` with the order a round longer: these stand there."""
        to = self.columns
        if self._new(("order", key), len(to["order_ranks"])):
            first = len(to["slot_rank"])
            to["order_ranks"].append(order.ranks)
            to["order_places"].append(order.places)
            to["order_shared"].append(shared)
            for name in ("rank", "kind", "stage", "takes", "puts", "last", "tail", "pair"):
                self._whole(f"slot_{name}", getattr(order, name)[shared:])
            self._whole("tail_slot", order.tails, first - shared)
            to["order_at"].append(len(to["slot_rank"]))
            to["tail_at"].append(len(to["tail_slot"]))
            to["rank_at"].append(len(to["held_at"]) - 1)
            for held in order.held:
                to["held"].extend(held)
                to["held_at"].append(len(to["held"]))
        return self.known["order", key]

    def _moments(self, key: Hashable, moments: Moments) -> int:
        """The moments of each rank in which it may hold most."""
        to = self.columns
        if self._new(("moments", key), len(to["moment_at"]) - 1):
            before, begun = len(to["moment_stage"]), len(to["in_flight"])
            to["in_flight_at"].extend(range(begun, begun + len(moments.flying), moments.width))
            self._whole("moment_stage", moments.stage)
            self._whole("moment_forward", forward(moments.kind))
            self._whole("in_flight", moments.flying)
            self._whole("moment_at", moments.begin[1:], before)
        return self.known["moments", key]

    def _whole(self, name: str, values: Row, later: int = 0) -> None:
        """Write whole numbers down, of a list or an array; places in rows that begin so much `later`."""
        to = self.columns[name]
        if is_array(values):
            to.frombytes((values + later).astype(float if name in REAL else int).tobytes())
        else:
            to.extend([value + later for value in values] if later else values)

    def launch_profile(self, key: Hashable, host: Host, ranks: int, across: bool, prefetch: int, beside: float) -> int:
        """How a trainer's host launches with so many tensor ranks; `across`: stages lie on several nodes."""
        to = self.columns
        if self._new(("launch profile", key), len(to["host_launch"])):
            to["host_launch"].append(host.launch)
            to["host_layer"].append(host.layer)
            to["host_recompute"].append(1.0 if host.layer_recomputes else AGAIN)
            to["host_growth"].append(1 + host.tensor_growth * math.log2(ranks))
            to["host_microbatch"].append(host.microbatch)
            floor = host.floor + host.floor_tensor * ranks + host.floor_pair * ranks**2
            to["host_floor"].append(floor if across else 0.0)
            to["device_layer"].append(host.device_layer)
            to["sharpness"].append(host.sharpness if math.isfinite(host.sharpness) else 0.0)
            to["prefetch"].append(prefetch)
            to["beside"].append(beside)
        return self.known["launch profile", key]

    def tables(self, compiled: bool) -> Tables:
        """The tables for Python, or for a compiler."""
        places, real, whole = joined(self.columns)
        rows = (readable(real), readable(whole)) if compiled else (real.tolist(), whole.tolist())
        return Tables(*rows, levels=len(self.levels), **places)


def _written(figures: Sequence[Quantity], samples: int) -> bytes:
    """Figures as they stand in a table; of arrays all those of the first number of samples, then of the next."""
    if not samples:
        return array("d", figures).tobytes()
    import numpy

    found = numpy.empty((samples, len(figures)))
    for at, figure in enumerate(figures):
        found[:, at] = figure
    return found.tobytes()
