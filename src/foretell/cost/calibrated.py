"""A cluster and a trainer with what was measured in the place of what formulas and data sheets say.

There is one cost model. A calibration changes what it is given: the device's figures (processors only: data sheets of
accelerators stay, so that a utilisation means the same everywhere), corrections of kernels and collectives by size
(`hardware/measured.py`), and the trainer's constants that belong to a machine: the host's time for a launch, what the
allocator takes, how well messages run beside computation.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from foretell.cost.core_contention import LAST, CoreContention, held_up_by_others
from foretell.cost.cpu_host_work import BYTE, SHARED
from foretell.cost.kernels import kernel_seconds, update_seconds
from foretell.cost.kernels._measured import LAUNCH, kinds, sizes, update_kind
from foretell.cost.launch_overhead import InTurn, Starts, TimedKernel, in_turn
from foretell.cost.measured_exchanges import exchange_points
from foretell.cost.memory import device_context
from foretell.cost.prices import INTERRUPTED
from foretell.cost.samples import (
    Calibration,
    CollectiveSample,
    Kernel,
    MeasuredMachine,
    Sample,
    SampleFit,
    StepSample,
    UpdateSample,
    form_of,
)
from foretell.cost.sustained import as_it_was, under_power
from foretell.cost.wrapped_timed import as_timed
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster, Device, Level
from foretell.hardware.measured import Point, Surface
from foretell.model.optimizer import update_rule
from foretell.plan.policies.precision import Format
from foretell.plan.trainer import Trainer, trainer
from foretell.program.action import Update

LEAST: Final = 0.25
"""Share of a sample that has to be the kernel's own, for it to say something of the kernel."""

WAITED: Final = (("zero2", 0.0), ("zero3", 0.0))
"""What FSDP2 hides on a processor: it leaves its messages to streams of the device, and a processor has none (PyTorch
2.13, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: they are not asynchronous)."""

SHORTEST: Final = 10e-6
"""Seconds that a message takes at least: two rows of steps, one with it and one without, may differ by less."""

FEW_BYTES: Final = 2**12
"""Bytes of a message that travels between cores of one machine in no time."""

LONG: Final = 500e-6
"""Seconds from which on a kernel's times tell how even a core is, rather than its caches."""

PASSES: Final = ("forward", "backward")

STREAMED: Final = 2**22
"""Bytes from which on a copy tells of the memory rather than of a cache."""


class Calibrated(NamedTuple):
    """What predictions use."""

    cluster: Cluster
    trainer: Trainer


def calibrated(cluster: Cluster, runs: Trainer, found: Calibration, ranks: int = 1) -> Calibrated:
    """A cluster and a trainer as they were measured; `ranks` is how many of a machine's devices are busy at once."""
    if found.machine.device != cluster.device.name:
        what = f"this calibration is of {found.machine.device}, and {cluster.text} has {cluster.device.name}"
        raise BadInput(what, where="--calibration", fix=f"foretell calibrate on a {cluster.device.name}")
    device = measured_device(cluster.device, found, ranks)
    groups = tuple(msgspec.structs.replace(group, device=device) for group in cluster.groups)
    plain = msgspec.structs.replace(cluster, groups=groups)
    levels = tuple(_level(level, plain, found, ranks) for level in cluster.levels)
    return Calibrated(msgspec.structs.replace(plain, levels=levels), _trainer(runs, found, device, ranks))


def told(found: Calibration) -> str:
    """Where a measured figure comes from."""
    return told_by(found.date, found.machine)


def told_by(date: str, machine: MeasuredMachine) -> str:
    """When a machine was measured, and with what."""
    torch = machine.versions.get("torch", "")
    return f"measured here on {date[:10]}" + (f" with PyTorch {torch}" if torch else "")


# the device


def measured_device(device: Device, found: Calibration, ranks: int = 1) -> Device:
    """The device with its own figures where no data sheet is about it, and with corrections of its kernels."""
    base = _processor(device, found) if found.machine.kind == "cpu" else device
    surfaces = {kind: Surface(tuple(points)) for kind, points in kernel_points(base, found).items()}
    power = under_power(found, base) if found.machine.kind == "cuda" else None
    if found.machine.kind == "cuda" and power is None:
        surfaces = {kind: as_it_was(kind, alone.points) for kind, alone in surfaces.items()}
    if found.machine.kind == "cpu":
        last, crowd, held_up = slowest(found, ranks), CoreContention.of(found, ranks), held_up_by_others(found, ranks)
        surfaces = {kind: crowd.around(kind, surface).slower(last * held_up) for kind, surface in surfaces.items()}
        surfaces |= {kind: surface.slower(last) for kind, surface in cold_launches(found)}
        surfaces |= dict(shares(base.launch_seconds, found))
        base = msgspec.structs.replace(base, launch_seconds=base.launch_seconds * held_up)
        surfaces |= dict(interrupted(base.launch_seconds, found, ranks))
    sources = {**base.sources, "measured": told(found)}
    return msgspec.structs.replace(base, measured=surfaces, under_power=power, sources=sources)


def _processor(device: Device, found: Calibration) -> Device:
    """A core by what it does: the best rates of products and copies, and the time to call an operator."""
    kernels = [(one.about, one.mean) for one in found.samples if isinstance(one.about, Kernel)]
    rates: dict[str, float] = {}
    streams: list[float] = []
    for about, seconds in kernels:
        cost = [action.cost for action in about.actions()]
        tag = about.operator["operator"]
        if tag == "matmul":
            rate = sum(float(part.matrix) for part in cost) / seconds
            rates[about.precision] = max(rate, rates.get(about.precision, 0.0))
        moved = sum(float(part.read + part.written) for part in cost)
        if tag == "elementwise" and moved >= STREAMED:
            streams.append(moved / seconds)
    launch = _median(_steps(found).values())
    figures = {"vector": {**device.vector, **rates}, "launch_seconds": launch or device.launch_seconds}
    if streams:
        figures["memory_bandwidth"] = statistics.median(streams)
    sources = dict.fromkeys(("memory_bandwidth", "launch", *(f"vector.{word}" for word in rates)), told(found))
    return msgspec.structs.replace(device, **figures, sources={**device.sources, **sources})


def kernel_points(device: Device, found: Calibration) -> dict[str, list[Point]]:
    """Measured over formula for each kind of kernel that was timed."""
    points: dict[str, list[Point]] = defaultdict(list)
    alone = [(one, one.about) for one in found.samples if isinstance(one.about, Kernel) and not one.about.sustained]
    kernels = [_timed(one, about, device) for one, about in alone]
    starts = Starts(found, kernels) if found.machine.kind == "cpu" else None
    for timed in kernels:
        started = starts.of(timed) if starts else None
        for kind, point in _kernel(timed, device, started):
            points[kind].append(point)
    for one in found.samples:
        if isinstance(one.about, UpdateSample):
            for kind, point in _update(one, one.about, device):
                points[kind].append(point)
    return points


def _timed(one: Sample, about: Kernel, device: Device) -> TimedKernel:
    form, runs = form_of(about.precision), _runs(about.layout)
    prices = [kernel_seconds(action, device, form, runs) for action in about.actions()]
    return TimedKernel(one, about, sum(float(price.seconds - price.launch) for price in prices))


def _kernel(timed: TimedKernel, device: Device, started: InTurn | None) -> Iterator[tuple[str, Point]]:
    """The sample as a point for each of its parts; parts that were timed together have the same ratio.

    On a processor the start is in the sample; a sample that is little else tells nothing of the kernel.
    """
    one, about = timed.sample, timed.about
    form, runs = form_of(about.precision), _runs(about.layout)
    actions = list(about.actions())
    if started:
        own = InTurn.of(one).less(started)
    else:
        own = one.p50 - sum(float(kernel_seconds(action, device, form, runs).launch) for action in actions)
    if own < LEAST * one.p50 or not timed.said:
        return
    log = math.log(own / timed.said)
    for action in actions:
        first, second = (math.log2(max(float(size), 1.0)) for size in sizes(action.cost))
        names = list(kinds(action, form, runs))
        for kind in (names[0], names[2 if about.layout == "last" else 1]):
            yield kind, (first, second, log)


def _update(one: Sample, about: UpdateSample, device: Device) -> Iterator[tuple[str, Point]]:
    """None of so few parameters that the formula has no time beside the launch."""
    form = _optimizer_form(about)
    cost = update_rule(about.rule).cost(about.parameters, dict.fromkeys("wgs", form.weight))
    price = update_seconds(Update(about.rule, about.parameters, cost), device, form)
    said = float(price.seconds - price.launch)
    if not said:
        return
    seconds = one.mean if device.is_processor else one.p50  # a GPU's calls were timed several at once
    measured = max(seconds - float(price.launch), LEAST * seconds)
    first, second = (math.log2(float(size)) for size in sizes(cost))
    yield update_kind(about.rule, form), (first, second, math.log(measured / said))


def _optimizer_form(about: UpdateSample) -> Format:
    """A trainer with a master copy brings a fused kernel."""
    form = form_of(about.precision)
    return msgspec.structs.replace(form, master=4) if about.way == "fused" else form


@functools.cache
def _runs(layout: str) -> Trainer:
    return trainer("pytorch-channels-last" if layout == "last" else "pytorch")


def _steps(found: Calibration, cold: bool = False, part: str = "") -> dict[str, float]:
    """Seconds of a launch in steps of models too small to compute: as they are, with other data before layers, or those
    of a pass with other data before operators."""
    steps = [(one, one.about) for one in found.samples if isinstance(one.about, StepSample)]
    steps = [(one, about) for one, about in steps if (about.cold, about.part) == (cold, part)]
    cpu = found.machine.kind == "cpu"
    return {about.model: (one.mean if cpu else one.p50) / about.launches for one, about in steps}


def cold_launches(found: Calibration) -> Iterator[tuple[str, Surface]]:
    """How many times as long a launch takes with the host's code out of the caches.

    By passes with other data before every operator, where they were timed so: a kernel that moves something pushes the
    code of those after it out, and a layer has many. Else by whole steps, or by a bare call and one through autograd.
    """
    warm, cold = _steps(found), _steps(found, cold=True)
    whole = _median(cold[model] / warm[model] for model in cold if model in warm)
    for kind, part, name in zip(LAUNCH, PASSES, ("call", "autograd call"), strict=True):
        if launched := _median(_steps(found, cold=True, part=part).values()):
            yield kind, _always(max(1.0, launched / _median(warm.values())))
        elif whole:
            yield kind, _always(max(1.0, whole))
        elif known := in_turn(found, name):
            yield kind, _always(max(1.0, known.cold / known.warm))


def shares(launch: float, found: Calibration) -> Iterator[tuple[str, Surface]]:
    """The host's time for weights in shares over that of a launch.

    The update calls the same code for every tensor; between two units of weights a whole layer runs.
    """
    call, cold = in_turn(found, "call"), dict(cold_launches(found))
    for name, calls in SHARED.items():
        own = in_turn(found, name)
        seconds = own.warm if own else calls * call.warm if call else 0.0
        if seconds and launch:
            between = cold[LAUNCH[1]].factor(1, 1) if name == "shared unit" and LAUNCH[1] in cold else 1.0
            yield name, _always(seconds * between / launch)
    if launch and (byte := found.figure(BYTE)):
        yield BYTE, _always(byte / launch)


def interrupted(launch: float, found: Calibration, ranks: int) -> Iterator[tuple[str, Surface]]:
    """What a message that layers wait for takes of a rank, over a launch, whatever the link: threads wake up, and
    computing is slower after them. It is what a message of few bytes between cores of one machine lengthens a row of
    computing by, since such a message travels in no time.

    Of as many ranks as are busy, or as many as were tried.
    """
    small: dict[int, list[float]] = defaultdict(list)
    for one in found.samples:
        if isinstance(one.about, CollectiveSample) and one.about.row and one.about.payload <= FEW_BYTES:
            small[one.about.ranks].append(one.mean)
    if launch and small:
        count = max((number for number in small if number <= ranks), default=min(small))
        yield INTERRUPTED, _always(max(SHORTEST, statistics.fmean(small[count])) / launch)


def _always(ratio: float) -> Surface:
    """The same ratio at all sizes."""
    return Surface(((0.0, 0.0, math.log(ratio)),))


def slowest(found: Calibration, ranks: int) -> float:
    """How much longer the slowest of so many ranks takes than one does in the mean: all others wait for it.

    As it was timed; else by the spread of the same kernel on the same core, as if of normal times: the largest of n is
    expected where Blom 1958 (Statistical Estimates and Transformed Beta-Variables) has it.
    """
    if ranks == 1:
        return 1.0
    if found.figures(LAST):
        return max(1.0, found.among(LAST, ranks, alone=1.0))
    return 1.0 + spread(found) * statistics.NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))


def spread(found: Calibration) -> float:
    """How far repeated calls of the same kernel are apart: a standard deviation, as a share of their mean.

    Times with operands in the caches and without are two groups, and so are those of two passes.
    """
    long = [one for one in found.samples if isinstance(one.about, Kernel) and one.p50 >= LONG]
    passes = [values for one in long for values in one.by_pass]
    groups = [part for values in passes for part in (values[::2], values[1::2]) if len(part) > 1]
    return statistics.mean(statistics.pstdev(part) / statistics.mean(part) for part in groups) if groups else 0.0


# links


def _level(level: Level, cluster: Cluster, found: Calibration, busy: int) -> Level:
    """The level with corrections of its collectives, where they were timed over this link: inside the machine."""
    if level.name != "node":
        return level
    surfaces = {kind: Surface(tuple(points)) for kind, points in exchange_points(cluster, found, busy).items()}
    if not surfaces:
        return level
    sources = {**level.link.sources, "measured": told(found)}
    return msgspec.structs.replace(level, link=msgspec.structs.replace(level.link, measured=surfaces, sources=sources))


# the trainer


def _trainer(runs: Trainer, found: Calibration, device: Device, ranks: int) -> Trainer:
    """The trainer with the constants that belong to a machine.

    What was timed is PyTorch, operator by operator: trainers that start kernels in another way keep their own time.
    """
    alike = runs.execution == "eager" and runs.host.launch == _runs("first").host.launch
    given = dict(_memory(found, device)) | (dict(_constants(runs, found, ranks)) if alike else {})
    made = runs
    for key, value in given.items():
        table, name = key.split(".")
        part = msgspec.structs.replace(getattr(made, table), **{name: value})
        made = msgspec.structs.replace(made, **{table: part})
    timed = bool(_steps(found))  # a processor's launch is set without, too
    known = {key for key in given if key != "host.launch" or timed}
    sources = tuple((key, told(found) if key in known else source) for key, source in runs.sources)
    return msgspec.structs.replace(made, sources=sources)


def _constants(runs: Trainer, found: Calibration, ranks: int) -> Iterator[tuple[str, object]]:
    steps = _steps(found).values()
    if found.machine.kind == "cpu":  # one thread calls and computes: the time is the device's launch_seconds
        yield "host.launch", 0.0
    elif steps:
        launch = statistics.median(steps)
        yield "host.launch", launch
        for name, times in as_timed(runs.wrapped, found.figure, launch):
            yield f"wrapped.{name}", times
    if found.machine.kind == "cpu" and found.figure("overlap", -1.0) >= 0:
        share = min(1.0, found.among("overlap", max(2, ranks), alone=1.0))
        yield "gradients.overlap", (("any", share), *WAITED)


def _memory(found: Calibration, device: Device) -> Iterator[tuple[str, object]]:
    """What was timed of a whole context has the device's own in it, which is no constant of a trainer."""
    for key, known in (("context", device_context(device)), ("reserved", 0.0)):
        if (value := found.figure(key, -1.0)) >= 0:
            yield f"memory.{key}", max(0.0, value - known)


# for people


def fits(device: Device, cluster: Cluster | None, found: Calibration) -> dict[str, SampleFit]:
    """How well each kind is told by its other samples."""
    base = _processor(device, found) if found.machine.kind == "cpu" else device
    known = dict(kernel_points(base, found))
    if cluster is not None:
        known |= exchange_points(cluster, found)
    return {kind: _fit(points) for kind, points in sorted(known.items())}


def _fit(points: list[Point]) -> SampleFit:
    errors = sorted(abs(math.expm1(log)) for log in Surface(tuple(points)).residuals())
    return SampleFit(
        samples=len(points),
        factor=math.exp(statistics.median(log for *_, log in points)),
        median=statistics.median(errors) if errors else 0.0,
        p90=errors[int(0.9 * (len(errors) - 1))] if errors else 0.0,
    )


def _median(values: Iterable[float]) -> float:
    known = list(values)
    return statistics.median(known) if known else 0.0
