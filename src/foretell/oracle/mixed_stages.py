"""A pipeline on a cluster of two kinds of devices: each kind has some of its stages, and as many layers as it is fast.

Every stage is priced on the device that it lies on: all ranks are taken to be of one kind after the other, on the links
of the mixed cluster, and a stage's seconds are those of its own kind. Micro-batches pass all stages one after another
and then come as fast as the slowest stage lets them: of `m` of them a step takes a pass through all stages and `m - 1`
turns of the slowest (Huang et al. 2019, arXiv 1811.06965, section 2.3; the same of 1F1B, Narayanan et al. 2021, arXiv
2104.04473, section 2.2.1). Memory is that of each stage on its own kind; all else is that of the kind that takes
longer alone. Layers are shared out so that the slowest stage is fastest, unless the plan says a split.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from foretell.compiling import real_row
from foretell.cost.memory import MemoryUse
from foretell.cost.price import priced
from foretell.errors import BadInput
from foretell.hardware.cluster import DeviceGroup
from foretell.oracle.disturbed import stage_of
from foretell.oracle.memory_band import spread
from foretell.oracle.predict import Prediction, stage_work, told_memory
from foretell.oracle.request import Request
from foretell.oracle.resolve import Resolved, resolve
from foretell.oracle.verdict import VERDICTS, chance, needed_bytes, verdict
from foretell.plan.facts import facts
from foretell.plan.plan import Plan
from foretell.plan.strategies.pipeline import Pipeline
from foretell.timeline.engine import PARTS, is_compiled, kernels
from foretell.timeline.memory_timeline import ALWAYS, PASS, UPDATE
from foretell.timeline.plan_table import PlanTable, unrolled
from foretell.timeline.unroll import is_array
from foretell.units import show_percent, show_seconds

PASSING = ("1f1b", "gpipe")
"""Schedules in which micro-batches pass each stage once."""


class SplitSeconds(NamedTuple):
    """Layers of every stage, and the seconds that each computes in a step on its own device."""

    layers: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def slowest(self) -> float:
        return max(self.seconds)


class MixedStages(NamedTuple):
    """What is asked, and which kind each stage lies on."""

    request: Request
    alone: tuple[Request, Request]  # the same as if all ranks were of one kind
    kinds: tuple[int, ...]  # of every stage
    pipeline: Pipeline
    layers: int  # of the model

    def planned(self, layers: tuple[int, ...]) -> Plan:
        """The plan with these layers on its stages."""
        assert self.request.plan is not None
        split = msgspec.structs.replace(self.pipeline, split=layers)
        axes = tuple(split if isinstance(axis, Pipeline) else axis for axis in self.request.plan.axes)
        return msgspec.structs.replace(self.request.plan, axes=axes)

    def works(self, kind: int, layers: tuple[int, ...]) -> list[float]:
        """Seconds that each stage computes in a step, all on one kind."""
        asked = resolve(self.alone[kind].changed(plan=self.planned(layers)))
        return stage_work(asked.setting, asked.place)

    def split(self, layers: tuple[int, ...]) -> SplitSeconds:
        """These layers, each stage on the kind it lies on."""
        both = [self.works(kind, layers) for kind in (0, 1)]
        return SplitSeconds(layers, tuple(both[kind][at] for at, kind in enumerate(self.kinds)))

    def shared_out(self, first: int) -> tuple[int, ...]:
        """So many layers on the first kind's stages and the rest on the other's, evenly on each."""
        held: list[int] = []
        for kind, own in ((0, first), (1, self.layers - first)):
            stages = self.kinds.count(kind)
            held += [own // stages + (at < own % stages) for at in range(stages)]
        return tuple(held)


def predicted_stages(
    request: Request, alone: tuple[Request, Request], ask: Callable[[Request], tuple[Resolved, Prediction]]
) -> tuple[Resolved, Prediction]:
    """The step with the best split of layers, or with the one that the plan says."""
    mixed = _mixed(request, alone)
    best = mixed.split(mixed.pipeline.split or _best(mixed))
    asked, step = _composed(mixed, best, ask)
    notes = [_told(mixed, best)]
    if not mixed.pipeline.split:
        even = mixed.shared_out(round(mixed.layers * mixed.kinds.count(0) / len(mixed.kinds)))
        if even != best.layers:
            alike = _composed(mixed, mixed.split(even), ask)[1].step_seconds
            notes.append(f"with {_counted(even)} layers on each stage the step would take {show_seconds(alike)}")
    return asked, msgspec.structs.replace(step, notes=(*notes, *step.notes))


def _mixed(request: Request, alone: tuple[Request, Request]) -> MixedStages:
    """Which kind each stage lies on; refused where one lies on both."""
    plan, groups = request.plan, request.place.groups
    assert plan is not None
    pipeline = plan.axis(Pipeline)
    assert pipeline is not None
    if pipeline.schedule not in PASSING:
        what = f"of pipelines on unlike devices {' and '.join(PASSING)} are modelled, not {pipeline.schedule}"
        raise BadInput(what, where="--plan", fix=f"pp{pipeline.ranks}:{PASSING[0]}")
    setting = resolve(alone[0]).setting
    inside = [{stage_of(setting, rank) for rank in ranks} for ranks in _ranks(groups)]
    if inside[0] & inside[1] or sorted(inside[0]) != list(range(len(inside[0]))):
        what = f"stages lie on both {groups[0].device.name} and {groups[1].device.name}"
        held = f"{groups[0].ranks} and {groups[1].ranks} ranks in whole stages"
        fix = f"pipelines outermost, with {held}: {_example(groups)}"
        raise BadInput(what, where="--plan", fix=fix)
    kinds = tuple(int(at in inside[1]) for at in range(pipeline.ranks))
    return MixedStages(request, alone, kinds, pipeline, facts(setting.graph).layers)


def _ranks(groups: tuple[DeviceGroup, ...]) -> tuple[range, range]:
    first, second = groups
    return range(first.ranks), range(first.ranks, first.ranks + second.ranks)


def _example(groups: tuple[DeviceGroup, ...]) -> str:
    """The shortest pipeline that has whole stages on either kind."""
    first, second = (group.ranks for group in groups)
    inside = max(count for count in range(1, first + 1) if first % count == second % count == 0)
    return f"pp{(first + second) // inside} dp{inside}"


def _best(mixed: MixedStages) -> tuple[int, ...]:
    """Where the slower kind's slowest stage is fastest: the one takes longer with each layer, the other shorter."""
    layers = mixed.layers
    least = (mixed.kinds.count(0), mixed.kinds.count(1))

    @functools.cache
    def at(first: int) -> SplitSeconds:
        return mixed.split(mixed.shared_out(first))

    def leads(first: int) -> bool:
        """Whether the first kind is done before the other."""
        found = at(first).seconds
        return max(found[: least[0]]) < max(found[least[0] :])

    low, high = least[0], layers - least[1]
    if high < low:
        what = f"{layers} layers do not fill {len(mixed.kinds)} stages"
        raise BadInput(what, where="--plan", fix=f"pp{layers} or fewer stages")
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if leads(middle) else (low, middle)
    near = range(max(least[0], low - 2), min(layers - least[1], low + 2) + 1)
    return min((at(first) for first in near), key=lambda found: found.slowest).layers


def _composed(
    mixed: MixedStages, split: SplitSeconds, ask: Callable[[Request], tuple[Resolved, Prediction]]
) -> tuple[Resolved, Prediction]:
    """The step of the kind that takes longer alone, with the stages that lie on the other as fast as they are."""
    plan = mixed.planned(split.layers)
    both = [ask(one.changed(plan=plan)) for one in mixed.alone]
    kind = max((0, 1), key=lambda at: both[at][1].step_seconds)
    asked, step = both[kind]
    own, turns = mixed.works(kind, split.layers), plan.microbatches
    shorter = (1 - 1 / turns) * (max(own) - split.slowest) + (sum(own) - sum(split.seconds)) / turns
    seconds = step.step_seconds - shorter
    rate = step.step_seconds / seconds
    groups = mixed.request.place.groups
    peak = sum(group.ranks * one.peak_flops for group, (_, one) in zip(groups, both, strict=True))
    peak /= mixed.request.place.ranks
    changed = msgspec.structs.replace(
        step,
        cluster=mixed.request.place.text,
        plan=str(plan),
        step_seconds=seconds,
        interval=(step.interval[0] / rate, step.interval[1] / rate),
        breakdown={name: part / rate for name, part in step.breakdown.items()},
        samples_per_second=step.samples_per_second * rate,
        tokens_per_second=step.tokens_per_second * rate,
        utilisation=step.utilisation * rate * step.peak_flops / peak,
        peak_flops=peak,
        **_memory(mixed, both),
    )
    return asked, changed


class StagePeak(NamedTuple):
    """What a stage holds at most, and the prediction of the kind that it lies on, whose devices it has to fit."""

    memory: MemoryUse
    step: Prediction

    @property
    def outcome(self) -> int:
        return VERDICTS.index(verdict(self.memory, self.step.usable, self.step.most))

    @property
    def filled(self) -> float:
        return needed_bytes(self.memory) / self.step.usable

    @property
    def likely(self) -> float:
        return chance(self.memory, self.step.most, spread(self.step.memory_band))


def _memory(mixed: MixedStages, both: list[tuple[Resolved, Prediction]]) -> dict[str, Any]:
    """The fields of a prediction that say whether memory is enough: of the stage that has least room on its own kind.
    What a stage would hold on the other decides nothing."""
    by_stage = tuple(both[kind][1].memory.by_stage[at] for at, kind in enumerate(mixed.kinds))
    peaks: list[StagePeak] = []
    for kind in (0, 1):
        (asked, step), own = both[kind], [at for at, one in enumerate(mixed.kinds) if one == kind]
        used = _fullest(step.memory, asked, own)
        peaks.append(StagePeak(msgspec.structs.replace(used, by_stage=by_stage), step))
    worst = max(peaks, key=lambda one: (one.outcome, one.filled))
    told = {"memory_bytes": worst.memory.device, "memory": worst.memory, "capacity": worst.step.capacity}
    told |= {"usable": worst.step.usable, "most": worst.step.most}
    told |= told_memory(worst.memory, worst.step.usable, worst.step.most, worst.step.memory_band)
    return told | {"chance": min(one.likely for one in peaks)}


def _fullest(used: MemoryUse, asked: Resolved, own: list[int]) -> MemoryUse:
    """What the fullest of these stages holds."""
    at = max(own, key=lambda one: used.by_stage[one])
    if used.by_stage[at] == used.device:
        return used
    plan, fast = priced(asked.setting, asked.place), is_compiled()
    table, steps, engine = PlanTable(asked.place), unrolled(plan), kernels(fast)
    table.add(plan, steps=steps)
    tables, plans = table.tables(fast), table.plans(fast)
    allocated, moment = engine.rank_memory(tables, plans, 0, at)
    sizes = real_row(len(PARTS), is_array(tables.f))
    engine.moment_bytes(tables, plans, 0, at, moment, sizes)
    slot = None if moment == UPDATE else steps.moments.one(moment).slot
    always = ALWAYS if slot else ALWAYS[:3]
    parts = {name: size for name, size in zip(PARTS, map(float, sizes), strict=True) if size or name in always}
    reserved, device, buffers = allocated * plan.constants.reserved, used.by_stage[at], plan.constants.communicators
    parts |= {"allocator": reserved - allocated, "context": device - reserved - buffers}
    parts |= {"communicators": buffers} if buffers else {}
    what = f"{PASS[slot.kind]} pass of micro-batch {slot.microbatch}" if slot else "update of weights"
    return MemoryUse(allocated, reserved, device, used.by_stage, parts, f"the {what} on pipeline rank {at}")


def _told(mixed: MixedStages, best: SplitSeconds) -> str:
    parts: list[str] = []
    for kind, group in enumerate(mixed.request.place.groups):
        held = tuple(count for at, count in enumerate(best.layers) if mixed.kinds[at] == kind)
        busy = max(seconds for at, seconds in enumerate(best.seconds) if mixed.kinds[at] == kind)
        parts.append(f"{_counted(held)} on each stage of {group.device.name} ({show_seconds(busy)} of computing)")
    return f"layers: {', '.join(parts)}; the fastest stage waits {show_percent(1 - min(best.seconds) / best.slowest)}"


def _counted(layers: tuple[int, ...]) -> str:
    least, most = min(layers), max(layers)
    return str(least) if least == most else f"{least} to {most}"
