"""What the care of a stage's weights costs: gathers and sums beside the layers, and the end of a step."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import Any, TypeAlias

from foretell.caches import emptied_when_full
from foretell.cost.compressing import compressing
from foretell.cost.cpu_host_work import CpuHostWork, shares_weights
from foretell.cost.prices import HIDES, Parts, Prices
from foretell.cost.unit_copies import unit_copy_seconds
from foretell.cost.wrapped_host import around_units
from foretell.model.layers import EqualLayers
from foretell.plan.axis_names import AxisName
from foretell.program.action import Action, Communicate, Copy, TrafficKind, Update
from foretell.program.exchange import BUCKET
from foretell.program.partition import PipelinePartition, StageSignature
from foretell.program.rank_program import RankProgram, kind_of
from foretell.program.stage_weights import PersistentBytes, StageWeights, UnitBytes
from foretell.program.weight_state import WeightStatePlan


@dataclass(frozen=True)
class WeightTrafficCost:
    """The weights of one shape of stage. All but counts and bytes are seconds."""

    enter_forward: float  # gathers before the first layer
    enter_back: float
    gather_forward: tuple[float, ...]  # before a layer of each run
    gather_back: tuple[float, ...]
    sums: tuple[float, ...]  # that leave after a layer of each run
    leave_back: float  # after the last layer
    enter_copy: float  # of weights from the host before the first layer
    leave_copy: float  # of gradients to it after the last
    copy_forward: tuple[float, ...]  # from the host before a layer of each run
    copy_back: tuple[float, ...]  # and to it after
    unit_launches: tuple[float, ...]  # what the host does around a layer of each run in either pass, in launches
    copies: tuple[float, float]  # of all layers, forward and back
    buckets: tuple[float, ...]  # that leave after each turn of a backward pass: enter, layers one by one, leave
    once: tuple[float, ...]  # the same of those once a step, after the last pass
    bucket_after: tuple[int, ...]  # the segment after which each bucket leaves
    once_after: tuple[int, ...]  # and each reduction once a step
    bucket_copies: tuple[float, float, float]  # of gradients into buckets and sums out of them once a step; their bytes
    slot_update: float  # after each backward pass: of weights that change with each micro-batch, or sums of gradients
    slot_copies: float  # of it: weights out of what was gathered, and gradients into what is summed
    slot_word: str  # what that is for
    tied: float  # of sums among stages: they wait for each other
    finish: Parts  # after all sums, tied ones included
    beside_forward: Parts  # what travels for weights in a pass, by axis
    beside_back: Parts
    beside_sums: Parts  # of gradients, in a backward pass
    beside_step: Parts
    taken: frozenset[str]  # levels of the cluster that these messages take up
    resting: PersistentBytes
    gathered: tuple[UnitBytes, ...]  # for the weights of each run of layers; empty where none are gathered
    root_bytes: float  # and of those of no layer

    def beside(self, kind: str) -> Parts:
        """What travels for weights in a kind of slot, by axis."""
        if kind != "B":
            return {"F": self.beside_forward, "I": self.beside_back, "W": self.beside_sums}[kind]
        both: Parts = defaultdict(float, self.beside_back)
        for axis, seconds in self.beside_sums.items():
            both[axis] += seconds
        return both

    def copied(self, kind: str) -> float:
        """Seconds of copies from and to the host in a kind of slot."""
        forward, back = self.copies
        return {"F": self.enter_copy + forward, "W": 0.0}.get(kind, back + self.leave_copy)

    @property
    def cared(self) -> bool:
        """Whether anything is done for weights in each micro-batch."""
        each = (self.enter_forward, self.enter_back, self.leave_back, self.slot_update, self.enter_copy, *self.copies)
        by_layer = (self.gather_forward, self.gather_back, self.sums, self.buckets)
        return any(each) or any(map(any, by_layer))


def weight_traffic_cost(
    partition: PipelinePartition,
    shape: StageSignature,
    local: RankProgram,
    weight_state: WeightStatePlan,
    prices: Prices,
) -> WeightTrafficCost:
    """The figures of a shape of stage: by its weights and who shares them, not by micro-batches or what runs again."""
    key = (
        partition.graph,
        shape._replace(received=(), sent=()),
        tuple(local.weights(kind) for kind, *_ in shape.layers),
        tuple(local.runs_back(kind) for kind, *_ in shape.layers),
        weight_state.key,
        partition.schedule.flushes,
        prices.key,
        prices.strides,
    )
    if key not in _KNOWN:
        _KNOWN[key] = _weight_traffic_cost(partition, shape, local, weight_state, prices)
    return _KNOWN[key]


_KNOWN: dict[Any, WeightTrafficCost] = {}
emptied_when_full(_KNOWN.clear)


def _weight_traffic_cost(
    partition: PipelinePartition,
    shape: StageSignature,
    local: RankProgram,
    weight_state: WeightStatePlan,
    prices: Prices,
) -> WeightTrafficCost:
    offload = weight_state.offload
    if offload.optimizer and not offload.weights and partition.schedule.flushes:
        return _updated_on_host(
            weight_traffic_cost(partition, shape, local, weight_state.on_device, prices), weight_state, prices
        )
    at = partition.signatures[shape][0]
    own = partition.weights(local, at, weight_state, folded=True)
    care = weight_state.care(own, partition.holders(at, own))
    versions = partition.schedule.weight_versions(partition.rank[at], partition.ranks)
    carer = _TrafficPricer(local, weight_state, prices, partition.runs(at), care, partition.schedule.flushes)
    return carer.figures(weight_state.resting(own, versions))


def _updated_on_host(stays: WeightTrafficCost, weight_state: WeightStatePlan, prices: Prices) -> WeightTrafficCost:
    """The same with states on the host: nothing changes before the update."""
    resting, ending = replace(stays.resting, states=0.0), WeightPrices(weight_state, prices)
    held = resting.updated
    update: Parts = defaultdict(float)
    for action in weight_state.updated_on_host(resting.updates, leaving=held, here=held):
        ending.add(action, update)
    finish: Parts = defaultdict(float)
    for name, seconds in stays.finish.items():
        if name == "optimizer":  # in the place of the one on the device
            finish.update(update)
        else:
            finish[name] += seconds
    return replace(stays, resting=resting, finish=finish)


class WeightPrices:
    """Prices of what is done for weights, with what a processor's thread does around messages and updates."""

    def __init__(self, weight_state: WeightStatePlan, prices: Prices) -> None:
        self.prices, self.chores = prices, CpuHostWork(prices)
        self.storages = {name: axis.storage.name for name, axis in weight_state.exchanges.axes.items()}

    @property
    def in_shares(self) -> bool:
        """Whether FSDP2 has the weights."""
        return any(storage in ("zero2", "zero3") for storage in self.storages.values())

    def message(self, one: Communicate) -> float:
        """Seconds of a message with what a processor does around it."""
        return self.prices.message(one) + (self.chores.of_unit(one) if shares_weights(one, self.storages) else 0.0)

    def add(self, action: Action, parts: Parts) -> None:
        name, seconds, host = self.priced(action)
        if seconds or host:
            parts[name] += seconds + host  # a step of the optimizer lasts until its last kernel has run

    def priced(self, action: Action) -> tuple[str, float, float]:
        """What an action is for, and its seconds: of the device, and that it waits for the host."""
        prices = self.prices
        if isinstance(action, Communicate):
            return f"exposed.{'+'.join(action.axes)}", self.message(action), 0.0
        if isinstance(action, Update):  # the host has waited for gradients, so it is not ahead
            seconds, launched = prices.update(action, self.in_shares)
            seconds += self.chores.of_update(action) if self.in_shares else 0.0
            return "optimizer", seconds, max(0.0, launched - seconds)
        if isinstance(action, Copy):
            return "other", action.bytes / prices.host_bandwidth, 0.0
        return "other", 0.0, 0.0


class _TrafficPricer:
    def __init__(
        self,
        local: RankProgram,
        weight_state: WeightStatePlan,
        prices: Prices,
        runs: Sequence[EqualLayers],
        care: StageWeights,
        flushes: bool,
    ) -> None:
        self.local, self.weight_state, self.prices = local, weight_state, prices
        self.runs, self.care, self.flushes = runs, care, flushes
        self.taken: set[str] = set()
        self.forward: Parts = defaultdict(float)
        self.back: Parts = defaultdict(float)
        self.summed: Parts = defaultdict(float)
        self.step: Parts = defaultdict(float)
        self.ending = WeightPrices(weight_state, prices)
        self.chores = self.ending.chores

    def figures(self, resting: PersistentBytes) -> WeightTrafficCost:
        care, weight_state = self.care, self.weight_state
        again = care.finish if not self.flushes else ()
        each = [one for one in (*care.reduces, *again) if isinstance(one, Communicate)]
        leaving, ending = (care.sums, care.ending) if self.flushes else ((), ())
        gather_forward, gather_back, sums = self._by_run()
        copy_forward, copy_back = self._copies_by_run()
        times = [run.times for run in self.runs]
        buckets = [one for one in each if one.path == BUCKET]
        late = [one for one in each if one.path != BUCKET and one.what != TrafficKind.WEIGHTS]
        leaves = [one for one in leaving if one.what == TrafficKind.WEIGHT_GRADIENTS]
        gathers = [one for one in leaving if one.what != TrafficKind.WEIGHT_GRADIENTS]
        added = self._added()
        copied = unit_copy_seconds(weight_state, care, self.runs, self._runs_back, self.prices.cluster)
        bucket_seconds, bucket_after = self._after(buckets, self.summed)
        once_seconds, once_after = self._after(leaves, self.step)
        finish = self._finished([*gathers, *ending])
        copies = self._copy_buckets([*buckets, *leaves], finish)
        if added:  # in each pass; the first one adds to nothing
            finish["backward"] -= added
        return WeightTrafficCost(
            self._seconds(weight_state.gathers(care.root), self.forward),
            self._seconds(weight_state.gathers(care.twice), self.back),
            gather_forward,
            gather_back,
            sums,
            self._seconds(late, self.summed),
            self._copied(weight_state.comes("", care.stays)),
            self._copied(weight_state.sends_out(care.stays)),
            copy_forward,
            copy_back,
            tuple(around_units(care.units, (run.layer for run in self.runs), self.prices.trainer.wrapped)),
            (sum(map(mul, copy_forward, times)), sum(map(mul, copy_back, times))),
            bucket_seconds,
            once_seconds,
            bucket_after,
            once_after,
            copies,
            sum(self.ending.priced(one)[1] for one in again if not _summed(one)) + added + copied,
            copied,
            "backward" if self.flushes else "optimizer",
            self._seconds((one for one in ending if _tied(one)), defaultdict(float)),
            finish,
            self.forward,
            self.back,
            self.summed,
            self.step,
            frozenset(self.taken),
            resting,
            care.gathered_for(self.runs, messages=not self.prices.device.is_processor),  # see memory.NEXT
            care.root_bytes,
        )

    def _seconds(self, actions: Iterable[Action], beside: Parts, times: int = 1) -> float:
        """Of messages; the axes they travel along and the levels they take up are noted."""
        found = 0.0
        for one in actions:
            if isinstance(one, Communicate):
                seconds = self.ending.message(one)
                found += seconds
                beside[f"exposed.{'+'.join(one.axes)}"] += seconds * times
                if one.what in HIDES:
                    self.taken.add(self.prices.level(one))
        return found

    def _by_run(self) -> tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]:
        exchanges, seen = self.weight_state.exchanges, set[str]()
        forward, back, sums = list[float](), list[float](), list[float]()
        for run in self.runs:
            unit = self.care.units.get(run.layer, []) if run.layer not in seen else []
            seen.add(run.layer)
            times = run.times
            forward.append(self._seconds(exchanges.gather(unit, ""), self.forward, times))
            again = exchanges.gather(unit, "") if self.weight_state.reshards and self._runs_back(run) else ()
            back.append(self._seconds(again, self.back, times))
            reduced = exchanges.reduce(unit, "") if "zero3" in self.weight_state.each else ()
            sums.append(self._seconds(reduced, self.summed, times))
        return tuple(forward), tuple(back), tuple(sums)

    def _runs_back(self, run: EqualLayers) -> bool:
        """Whether it has a backward pass: frozen layers with nothing trained before them have none."""
        return self.local.runs_back(kind_of(run))

    def _copies_by_run(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Seconds of copies of weights from the host and of gradients to it, for a layer of each run."""
        weight_state, seen = self.weight_state, set[str]()
        forward, back = list[float](), list[float]()
        for run in self.runs:
            weights = self.care.host.get(run.layer, []) if run.layer not in seen else []
            seen.add(run.layer)
            come = weight_state.comes("", weights)
            forward.append(self._copied(come))
            back.append(self._copied([*come, *weight_state.sends_out(weights)]) if self._runs_back(run) else 0.0)
        return tuple(forward), tuple(back)

    def _copied(self, actions: Iterable[Action]) -> float:
        return sum(one.bytes / self.prices.host_bandwidth for one in actions if isinstance(one, Copy))

    # sums that wait for a part of the gradients

    def _after(self, sums: Sequence[Communicate], beside: Parts) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Seconds of the sums that may leave after each segment, when it has made as large a part of the gradients; and
        the segment of each.

        Parts go by bytes: messages do not name their layers.
        """
        if not sums:
            return (0.0,) * (2 + sum(run.times for run in self.runs)), ()
        made = list(accumulate(self._made()))
        found, places = [0.0] * len(made), list[int]()
        known = {id(one): self._seconds([one], beside, count) for one, count in _counted(sums)}
        for one, part in _ready(sums) if made[-1] else ((one, 1.0) for one in sums):
            place = bisect_left(made, part * made[-1] * (1 - 1e-9)) if made[-1] else len(made) - 1
            found[place] += known[id(one)]
            places.append(place)
        return tuple(found), tuple(places)

    def _made(self) -> Iterator[int]:
        """Gradients that each turn of a backward pass makes, in elements."""
        yield 0
        for run in reversed(self.runs):
            weights = self.local.weights(kind_of(run))
            yield from [sum(weight.elements for weight in weights if weight.trainable)] * run.times
        yield 0

    # what a processor does besides

    def _tensors(self, side: int = 0) -> float:
        """Weights that are trained, whose shorter side is longer than this."""
        counts = Counter[str]()
        for run in self.runs:
            trained = (one for one in self.local.weights(kind_of(run)) if one.trainable)
            counts[run.layer] += run.times * sum(min(one.rows, one.columns) > side for one in trained)
        return max(1.0, float(sum(counts.values())))

    def _added(self) -> float:
        """Seconds in which a micro-batch's gradients are added to those of others."""
        if not self.chores.any or not self.flushes or self.ending.in_shares:
            return 0.0
        size = sum(self._made()) * self.prices.form.gradient
        return self.chores.accumulated(size, self._tensors())

    def _copy_buckets(self, sums: Sequence[Communicate], finish: Parts) -> tuple[float, float, float]:
        """Gradients go into buckets, or are written smaller, as they are made; their sums are read at the end."""
        own = [one for one in sums if one.path == BUCKET and not shares_weights(one, self.ending.storages)]
        size, smaller = sum(one.payload for one in own), self.weight_state.exchanges.compression
        if self.chores.any:
            filled, emptied = self.chores.buckets(size, self._tensors())
        else:  # what PowerSGD would not make smaller is left as it is
            tensors, ranks = self._tensors(smaller.rank), own[0].ranks if own else 1
            filled, emptied = compressing(smaller, sum(self._made()), tensors, ranks, self.prices.device)
        if filled:
            finish["backward"] += filled
            finish[f"exposed.{'+'.join(own[0].axes)}"] += emptied
        return filled, emptied, size if filled else 0.0

    # the end of a step

    def _finished(self, actions: Iterable[Action]) -> Parts:
        parts: Parts = defaultdict(float)
        for action in actions:
            self.ending.add(action, parts)
            if isinstance(action, Communicate) and action.what in HIDES:
                self.taken.add(self.prices.level(action))
        return parts


def _summed(action: Action) -> bool:
    return isinstance(action, Communicate) and action.what == TrafficKind.WEIGHT_GRADIENTS


def _tied(action: Action) -> bool:
    """Whether it sums gradients of weights that several stages hold."""
    return isinstance(action, Communicate) and _summed(action) and action.axes == (AxisName.PP,)


def _counted(sums: Sequence[Communicate]) -> list[tuple[Communicate, int]]:
    """Sums that are one and the same, and how many there are."""
    which = {id(one): one for one in sums}
    return [(which[key], count) for key, count in Counter(map(id, sums)).items()]


def _ready(sums: Sequence[Communicate]) -> Iterator[tuple[Communicate, float]]:
    """The part of all gradients that must be there before each of some sums can leave; they come in this order."""
    whole, so_far = defaultdict[_Way, float](float), defaultdict[_Way, float](float)
    ways: dict[int, _Way] = {}
    for one, count in _counted(sums):
        ways[id(one)] = one.kind, one.axes
        whole[one.kind, one.axes] += one.payload * count
    for one in sums:
        way = ways[id(one)]
        so_far[way] += one.payload
        yield one, so_far[way] / (whole[way] or 1)


_Way: TypeAlias = tuple[str, tuple[str, ...]]
