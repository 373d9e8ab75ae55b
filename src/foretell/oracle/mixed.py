"""A step on a cluster of several kinds of devices: each kind takes its share of the batch, or of a pipeline's layers.

Every rank waits for all gradients, so a step lasts as long as it does on the slowest kind. What that is follows from
the same prices as elsewhere: all ranks are taken to be of one kind after the other, on the links of the mixed cluster,
with the samples that a rank of this kind has. Shares are those that make the slowest fastest: with micro-batches, as
large on every rank, some take more of them, unless messages of weights keep them together. Stages on unlike devices are
in `mixed_stages.py`. Where one group of ranks lies on unlike devices all have equal shares, and wait for the slowest.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, Device, DeviceGroup
from foretell.oracle.mixed_stages import predicted_stages
from foretell.oracle.predict import Prediction
from foretell.oracle.request import Request
from foretell.oracle.resolve import SIZABLE, PlanEvaluator, Resolved
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.syntax import spelled_list
from foretell.units import show_percent, show_seconds

Ask = Callable[[Request], tuple[Resolved, Prediction]]

Split = tuple[int, ...]
"""Samples of a data rank of each kind."""


class DeviceKinds(NamedTuple):
    """The kinds of devices of a cluster, and which of them each rank is of."""

    devices: tuple[Device, ...]
    of: tuple[int, ...]

    @classmethod
    def in_cluster(cls, cluster: Cluster) -> DeviceKinds:
        devices = list(dict.fromkeys(group.device for group in cluster.groups))
        return cls(tuple(devices), tuple(devices.index(one.device) for one in cluster.groups for _ in range(one.ranks)))

    def of_each(self, ranks: int) -> tuple[int, ...] | None:
        """The kind of every so many ranks in a row; None where some are of several."""
        each = [set(self.of[at : at + ranks]) for at in range(0, len(self.of), ranks)]
        return tuple(kind for own in each for kind in own) if all(len(own) == 1 for own in each) else None


class KindShare(NamedTuple):
    """What one kind of device does: samples of each of its data ranks, and its step as if it waited for nobody."""

    device: Device
    ranks: int
    samples: int
    asked: Resolved
    step: Prediction


def predicted_mixed(request: Request, ask: Ask) -> tuple[Resolved, Prediction]:
    """The step with the best shares, told as the slowest kind has it."""
    plan, kinds = _asked(request), DeviceKinds.in_cluster(request.place)
    request = _loaded(request, plan, kinds)
    stages = _stages(plan, kinds)
    if stages is not None:
        each = tuple(alone(request, device) for device in kinds.devices)
        return predicted_stages(request, each, stages)
    return _Samples(request, plan, kinds, ask).predicted()


def _asked(request: Request) -> Plan:
    """The plan, if it is one over all ranks, and a step alone is asked about."""
    plan, cluster = request.plan, request.place
    if plan is None or plan.ranks != cluster.ranks:
        ranks = f"{plan} has {plan.ranks} ranks" if plan else "no plan is given"
        what = f"{ranks}, and a mixed cluster ({_held(cluster)}) is predicted as a whole"
        raise BadInput(what, where="--plan", fix=f"dp{cluster.ranks}:zero3, or one part: {_part(cluster.groups[0])}")
    asked = (request.disturbance, request.run.asked, request.measured.anchors, request.measured.profile)
    if any(asked) or request.forward:
        what = "on a mixed cluster a training step is predicted alone, without runs, disturbances and measurements"
        raise BadInput(what, where="--on", fix=f"the step alone, or one part: {_part(cluster.groups[0])}")
    return plan


def _loaded(request: Request, plan: Plan, kinds: DeviceKinds) -> Request:
    """The question with its model, which every share is asked of, loaded once; but one for a batch of its own."""
    if request.graph is not None:
        return request
    graph = PlanEvaluator(alone(request, kinds.devices[0])).setting(with_shares(plan, ())).graph
    return request.changed(graph=graph) if graph.source in SIZABLE else request


def _held(cluster: Cluster) -> str:
    return " and ".join(f"{group.ranks} x {group.device.name}" for group in cluster.groups)


def _part(group: DeviceGroup) -> str:
    return f"{group.ranks}x{group.device.name}"


def _stages(plan: Plan, kinds: DeviceKinds) -> tuple[int, ...] | None:
    """The kind of each rank of the pipeline, if it is one along which the two kinds lie."""
    pipeline = plan.axis(Pipeline)
    if pipeline is None or len(kinds.devices) != 2:
        return None
    at = plan.axes.index(pipeline)
    if any(axis.world > 1 for axis in plan.axes[:at]):
        return None
    return kinds.of_each(plan.ranks // pipeline.ranks)


def alone(request: Request, device: Device) -> Request:
    """The question as if all ranks were of this kind."""
    cluster = request.place
    same = msgspec.structs.replace(
        cluster, groups=(DeviceGroup(device, cluster.ranks),), text=f"{cluster.text} as {device.told}"
    )
    return request.changed(cluster=same)


class _Samples:
    """Ranks that share the batch as fast as they are, or evenly where they cannot."""

    def __init__(self, request: Request, plan: Plan, kinds: DeviceKinds, ask: Ask) -> None:
        self.request, self.plan, self.kinds, self.ask = request, plan, kinds, ask
        data = plan.axis(Data)
        self.ranks = data.world if data else 1  # that share the batch, beside others
        outermost = next((axis for axis in plan.axes if axis.world > 1), None) is data
        lies = kinds.of_each(plan.ranks // self.ranks) if data and outermost else None
        self.lies = lies or ()
        self.batch = request.batch or request.batch_per_rank * self.ranks
        if not self.batch:
            raise BadInput("a mixed cluster shares a batch out, and none is given", where="--batch", fix="--batch 64")
        stored = STORAGES[data.storage] if data else STORAGES["replicated"]
        self.together = stored.gradients  # whose messages come with every micro-batch, so that all have as many

    def predicted(self) -> tuple[Resolved, Prediction]:
        split = self._said() or self._found()
        best = self._both(split)
        slowest = max(best, key=lambda one: one.step.step_seconds)
        return slowest.asked, _joined(self.request, self._planned(split), self.batch, best, slowest, self._notes(split))

    def _both(self, split: Split) -> list[KindShare]:
        return [self._share(kind, samples) for kind, samples in enumerate(split)]

    def _slowest(self, split: Split) -> float:
        return max(one.step.step_seconds for one in self._both(split))

    @functools.cached_property
    def _known(self) -> dict[tuple[int, int], KindShare]:
        return {}

    def _share(self, kind: int, samples: int) -> KindShare:
        """One kind with so many samples on each of its data ranks."""
        if (kind, samples) not in self._known:
            device, plan = self.kinds.devices[kind], with_shares(self.plan, ())
            if plan.microbatches > 1 and not self.together:
                plan = with_microbatches(plan, samples // self.unit)
            asked = alone(self.request, device).changed(plan=plan, batch=samples * self.ranks, batch_per_rank=0)
            own = self.kinds.of.count(kind)
            self._known[kind, samples] = KindShare(device, own, samples, *self.ask(asked))
        return self._known[kind, samples]

    @functools.cached_property
    def unit(self) -> int:
        """Samples by which shares differ: one for each micro-batch, or those of one micro-batch."""
        count = self.plan.microbatches
        if count == 1 or self.together:
            return count
        if self.batch % (self.ranks * count):
            what = f"{self.batch} samples are no {count} equal micro-batches on each of {self.ranks} ranks"
            raise BadInput(what, where="--batch", fix=f"--batch {self.ranks * count}")
        return self.batch // (self.ranks * count)

    @property
    def even(self) -> Split | None:
        """As many on each; None where they do not divide so."""
        samples = self.batch // self.ranks
        whole = self.batch % self.ranks == 0 and samples % self.unit == 0 and samples > 0
        return (samples,) * len(self.kinds.devices) if whole else None

    def _found(self) -> Split:
        if len(self.kinds.devices) != 2 or not self.lies:
            if self.even is None:
                what = f"{self.batch} samples are no equal shares of {self.ranks} ranks in micro-batches"
                fix = f"--batch {self.ranks * self.plan.microbatches}"
                raise BadInput(what, where="--batch", fix=fix)
            return self.even
        first, second = self.lies.count(0), self.lies.count(1)
        splits = list(_splits(self.batch, first, second, self.unit))
        if not splits:
            what = f"{self.batch} samples do not go into {first} and {second} equal shares of {self.unit} or more"
            raise BadInput(what, where="--batch", fix=f"--batch {self.unit * self.ranks}")
        best = _best(splits, self._seconds)
        if all(one.step.fits for one in self._both(best)):
            return best
        able = _able(splits, lambda kind, split: self._share(kind, split[kind]).step.fits)
        return _best(able or splits, self._seconds)

    def _seconds(self, split: Split) -> list[float]:
        return [one.step.step_seconds for one in self._both(split)]

    # shares that the plan says

    def _said(self) -> Split | None:
        """The shares that the plan has: of ranks of one kind that have several, the largest."""
        data = self.plan.axis(Data)
        if data is None or not data.shares:
            return None
        parts = [self.batch * share / (sum(data.shares) * (self.ranks // len(data.shares))) for share in data.shares]
        if any(part % self.unit for part in parts):
            what = f"{self.batch} samples do not go into shares of {spelled_list(data.shares)} in micro-batches"
            step = self.unit * sum(data.shares) * (self.ranks // len(data.shares)) // math.gcd(*data.shares)
            raise BadInput(what, where="--batch", fix=f"--batch {step * max(1, round(self.batch / step))}")
        if not self.lies:
            what = "ranks that share samples unevenly lie on both kinds of devices"
            raise BadInput(what, where="--plan", fix="data parallelism outermost, or equal shares")
        block = self.ranks // len(data.shares)
        held = [[parts[at // block] for at, one in enumerate(self.lies) if one == kind] for kind in set(self.lies)]
        return tuple(int(max(own)) for own in held)

    # what is told

    def _planned(self, split: Split) -> Plan:
        """The plan with its shares, where they differ."""
        if not self.lies or len(set(split)) == 1:
            return self.plan
        runs = [(kind, len(list(own))) for kind, own in groupby(self.lies)]
        block, least = math.gcd(*(count for _, count in runs)), math.gcd(*split)
        shares = tuple(split[kind] // least for kind, count in runs for _ in range(count // block))
        return with_shares(self.plan, shares)

    def _notes(self, split: Split) -> tuple[str, ...]:
        best = self._both(split)
        each = [f"{one.samples} on each {one.device.told} ({show_seconds(one.step.step_seconds)})" for one in best]
        fast, slow = min(one.step.step_seconds for one in best), max(one.step.step_seconds for one in best)
        notes = [f"samples: {', '.join(each)}; the faster kind waits {show_percent(1 - fast / slow)} of the step"]
        if self.even is not None and self.lies and len(best) == 2:
            alike = self._slowest(self.even)
            notes.append(f"with {self.even[0]} samples on each rank the step would take {show_seconds(alike)}")
        if not self.lies:
            notes.append("groups of ranks lie on unlike devices: all ranks have equal shares and wait for the slowest")
        return tuple(notes)


def with_shares(plan: Plan, shares: tuple[int, ...]) -> Plan:
    """The plan whose data ranks take these shares of the samples."""
    axes = (msgspec.structs.replace(axis, shares=shares) if isinstance(axis, Data) else axis for axis in plan.axes)
    return msgspec.structs.replace(plan, axes=tuple(axes))


def with_microbatches(plan: Plan, count: int) -> Plan:
    kept = [policy for policy in plan.policies if not isinstance(policy, Microbatches)]
    more = (Microbatches(count=count),) if count > 1 else ()
    return msgspec.structs.replace(plan, policies=(*kept, *more))


def _splits(batch: int, first: int, second: int, unit: int) -> Iterator[Split]:
    """Samples of a rank of either kind, so that all are taken and micro-batches are whole."""
    for samples in range(unit, (batch - unit * second) // first + 1, unit):
        rest = batch - samples * first
        if rest % (second * unit) == 0:
            yield samples, rest // second


def _best(splits: list[Split], seconds: Callable[[Split], list[float]]) -> Split:
    """Where the slower of the two is fastest: the one takes longer with each sample, the other shorter."""
    low, high = 0, len(splits) - 1
    while low < high:
        middle = (low + high) // 2
        first, second = seconds(splits[middle])
        low, high = (middle + 1, high) if first < second else (low, middle)
    alike = min(splits, key=_unlike)  # the one to take where messages decide, whatever the shares
    near = [*splits[max(0, low - 1) : low + 2], alike]
    return min(near, key=lambda split: (max(seconds(split)), _unlike(split)))


def _able(splits: list[Split], fits: Callable[[int, Split], bool]) -> list[Split]:
    """Those that fit on both: the one holds more with each sample, the other less."""
    most = bisect.bisect_left(range(len(splits)), True, key=lambda at: not fits(0, splits[at]))
    least = bisect.bisect_left(range(len(splits)), True, key=lambda at: fits(1, splits[at]))
    return splits[least:most]


def _unlike(split: Split) -> int:
    return abs(split[0] - split[1])


def _joined(
    request: Request, plan: Plan, batch: int, best: Sequence[KindShare], slowest: KindShare, notes: tuple[str, ...]
) -> Prediction:
    """The prediction of all: the time of the slowest, work and peaks of all, memory of the one with least room."""
    cluster, step = request.place, slowest.step
    parts = [(one.ranks / cluster.ranks, one.step) for one in best]
    flops, hardware = (
        sum(share * getattr(one, key) for share, one in parts) for key in ("model_flops", "hardware_flops")
    )
    peak = sum(share * one.peak_flops for share, one in parts)
    fullest = max(best, key=lambda one: one.step.needed_bytes / one.step.usable).step
    rate = batch / step.step_seconds
    return msgspec.structs.replace(
        step,
        cluster=cluster.text,
        plan=str(plan),
        batch=batch,
        samples_per_second=rate,
        tokens_per_second=step.tokens_per_second / step.samples_per_second * rate,
        model_flops=flops,
        hardware_flops=hardware,
        peak_flops=peak,
        utilisation=flops / (step.step_seconds * cluster.ranks * peak),
        memory_bytes=fullest.memory_bytes,
        memory=fullest.memory,
        memory_interval=fullest.memory_interval,
        memory_band=fullest.memory_band,
        capacity=fullest.capacity,
        usable=fullest.usable,
        needed_bytes=fullest.needed_bytes,
        fits=all(one.step.fits for one in best),
        verdict=fullest.verdict,
        chance=min(one.step.chance for one in best),
        notes=(*notes, *step.notes),
    )
