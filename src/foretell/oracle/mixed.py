"""A step on a cluster of several kinds of devices: each kind takes its share of the batch, or of a pipeline's layers.

Every rank waits for all gradients, so a step lasts as long as it does on the slowest kind. What that is follows from
the same prices as elsewhere: all ranks are taken to be of one kind after the other, on the links of the mixed cluster,
with the samples that a rank of this kind has. Shares are those that make the slowest fastest: with micro-batches, as
large on every rank, some take more of them. Stages on unlike devices are in `mixed_stages.py`. Two kinds are modelled;
tensor ranks on different devices are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, DeviceGroup
from foretell.oracle.mixed_stages import predicted_stages
from foretell.oracle.predict import Prediction
from foretell.oracle.request import Request
from foretell.oracle.resolve import Resolved
from foretell.plan.plan import Plan
from foretell.plan.policies.microbatches import Microbatches
from foretell.plan.strategies.data import Data
from foretell.plan.strategies.pipeline import Pipeline
from foretell.units import show_percent, show_seconds

Ask = Callable[[Request], tuple[Resolved, Prediction]]


class KindShare(NamedTuple):
    """What one kind of device does: samples of each of its ranks, and its step as if it were alone in waiting."""

    group: DeviceGroup
    samples: int
    asked: Resolved
    step: Prediction


def predicted_mixed(request: Request, ask: Ask) -> tuple[Resolved, Prediction]:
    """The step with the best shares, told as the slowest kind has it."""
    cluster, plan = request.place, _asked(request)
    if plan.axis(Pipeline) is not None:
        first, second = (_alone(request, group) for group in cluster.groups)
        return predicted_stages(request, (first, second), ask)
    first, second = cluster.groups
    batch = request.batch or request.batch_per_rank * cluster.ranks
    if not batch:
        raise BadInput("a mixed cluster shares a batch out, and none is given", where="--batch", fix="--batch 64")
    unit = 1 if plan.microbatches == 1 else _micro_batch(batch, cluster.ranks, plan)

    @functools.cache
    def share(at: int, samples: int) -> KindShare:
        count = 1 if plan.microbatches == 1 else samples // unit
        return KindShare(cluster.groups[at], samples, *ask(_shared(request, cluster.groups[at], samples, count)))

    def both(samples: tuple[int, int]) -> tuple[KindShare, KindShare]:
        return share(0, samples[0]), share(1, samples[1])

    splits = list(_splits(batch, first.ranks, second.ranks, unit))
    if not splits:
        what = f"{batch} samples do not go into {first.ranks} and {second.ranks} equal shares of {unit} or more"
        raise BadInput(what, where="--batch", fix=f"--batch {unit * cluster.ranks}")
    best = both(_best(splits, lambda split: [one.step.step_seconds for one in both(split)]))
    even = batch // cluster.ranks
    notes = [_told(best)]
    if (even, even) in splits:
        alike = max(one.step.step_seconds for one in both((even, even)))
        notes.append(f"with {even} samples on each rank the step would take {show_seconds(alike)}")
    slowest = max(best, key=lambda one: one.step.step_seconds)
    return slowest.asked, _joined(request, batch, best, slowest, tuple(notes))


def _asked(request: Request) -> Plan:
    """The plan, if its stages lie on one kind each, or all that its ranks divide are samples."""
    plan, cluster = request.plan, request.place
    groups = cluster.groups
    if len(groups) != 2:
        raise BadInput(f"{len(groups)} kinds of devices, and two are modelled", where="--on", fix="two of them")
    divided = [type(axis) for axis in plan.axes if axis.world > 1] if plan else []
    if plan is None or plan.ranks != cluster.ranks or (divided != [Data] and Pipeline not in divided):
        what = f"of mixed clusters ({_held(cluster)}) data parallelism and pipelines over all ranks are modelled alone"
        raise BadInput(what, where="--plan", fix=f"dp{cluster.ranks}:zero3, or one part: {_part(groups[0])}")
    asked = (request.disturbance, request.run.asked, request.measured.anchors, request.measured.profile)
    if any(asked) or request.forward:
        what = "on a mixed cluster a training step is predicted alone, without runs, disturbances and measurements"
        raise BadInput(what, where="--on", fix=f"the step alone, or one part: {_part(groups[0])}")
    return plan


def _held(cluster: Cluster) -> str:
    return " and ".join(f"{group.ranks} x {group.device.name}" for group in cluster.groups)


def _part(group: DeviceGroup) -> str:
    return f"{group.ranks}x{group.device.name}"


def _micro_batch(batch: int, ranks: int, plan: Plan) -> int:
    """Samples of a micro-batch, as they would be if all ranks had as many of them."""
    if batch % (ranks * plan.microbatches):
        what = f"{batch} samples are no {plan.microbatches} equal micro-batches on each of {ranks} ranks"
        raise BadInput(what, where="--batch", fix=f"--batch {ranks * plan.microbatches}")
    return batch // (ranks * plan.microbatches)


def _with_microbatches(plan: Plan, count: int) -> Plan:
    kept = [policy for policy in plan.policies if not isinstance(policy, Microbatches)]
    more = (Microbatches(count=count),) if count > 1 else ()
    return msgspec.structs.replace(plan, policies=(*kept, *more))


def _alone(request: Request, group: DeviceGroup) -> Request:
    """The question as if all ranks were of this kind."""
    cluster = request.place
    same = msgspec.structs.replace(
        cluster, groups=(DeviceGroup(group.device, cluster.ranks),), text=f"{cluster.text} as {group.device.name}"
    )
    return request.changed(cluster=same)


def _shared(request: Request, group: DeviceGroup, samples: int, count: int) -> Request:
    """The same with so many samples on each rank, in so many micro-batches."""
    assert request.plan is not None
    plan = _with_microbatches(request.plan, count)
    return _alone(request, group).changed(plan=plan, batch=samples * request.place.ranks, batch_per_rank=0)


def _splits(batch: int, first: int, second: int, unit: int) -> Iterator[tuple[int, int]]:
    """Samples of a rank of either kind, so that all are taken and micro-batches are whole."""
    for samples in range(unit, (batch - unit * second) // first + 1, unit):
        rest = batch - samples * first
        if rest % (second * unit) == 0:
            yield samples, rest // second


def _best(splits: list[tuple[int, int]], seconds: Callable[[tuple[int, int]], list[float]]) -> tuple[int, int]:
    """Where the slower of the two is fastest: the one takes longer with each sample, the other shorter."""
    low, high = 0, len(splits) - 1
    while low < high:
        middle = (low + high) // 2
        first, second = seconds(splits[middle])
        low, high = (middle + 1, high) if first < second else (low, middle)
    alike = min(splits, key=_unlike)  # the one to take where messages decide, whatever the shares
    near = [*splits[max(0, low - 1) : low + 2], alike]
    return min(near, key=lambda split: (max(seconds(split)), _unlike(split)))


def _unlike(split: tuple[int, int]) -> int:
    return abs(split[0] - split[1])


def _told(best: tuple[KindShare, KindShare]) -> str:
    shares = [f"{one.samples} on each {one.group.device.name} ({show_seconds(one.step.step_seconds)})" for one in best]
    fast, slow = sorted(one.step.step_seconds for one in best)
    return f"samples: {', '.join(shares)}; the faster kind waits {show_percent(1 - fast / slow)} of the step"


def _joined(
    request: Request, batch: int, best: tuple[KindShare, KindShare], slowest: KindShare, notes: tuple[str, ...]
) -> Prediction:
    """The prediction of all: the time of the slowest, work and peaks of both, memory of the one with least room."""
    cluster, step = request.place, slowest.step
    parts = [(one.group.ranks / cluster.ranks, one.step) for one in best]
    flops, hardware = (
        sum(share * getattr(one, key) for share, one in parts) for key in ("model_flops", "hardware_flops")
    )
    peak = sum(share * one.peak_flops for share, one in parts)
    fullest = max(best, key=lambda one: one.step.needed_bytes / one.step.usable).step
    rate = batch / step.step_seconds
    return msgspec.structs.replace(
        step,
        cluster=cluster.text,
        plan=str(request.plan),
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
