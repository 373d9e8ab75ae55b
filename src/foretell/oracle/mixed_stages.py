"""A pipeline on a cluster of two kinds of devices: each kind has some of its stages, and as many layers as it is fast.

Stages that lie on unlike devices are unlike stages to the engine: each is priced on its own, and the step is that of
its slots as everywhere else. Memory is that of each stage on its own kind. What is one for all (how the host launches,
how far to trust it) is that of the kind whose slowest stage is slower. Layers are shared out so that the slowest stage
is fastest, unless the plan says a split.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import msgspec

from foretell.cost.memory import MemoryUse, memory_constants, most_bytes, usable_bytes
from foretell.cost.price import PricedProgram, priced_on_kinds
from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.oracle.memory_band import doubts, spread
from foretell.oracle.predict import Prediction, predict_priced, stage_work, told_memory
from foretell.oracle.request import Request
from foretell.oracle.resolve import Resolved, resolve
from foretell.oracle.verdict import VERDICTS, chance, needed_bytes, verdict
from foretell.plan.facts import facts
from foretell.plan.plan import Plan
from foretell.plan.setting import Setting
from foretell.plan.strategies.pipeline import Pipeline
from foretell.program.lower import lower
from foretell.timeline.memory_timeline import plan_memory
from foretell.units import show_percent, show_seconds


class SplitSeconds(NamedTuple):
    """Layers of every stage, and the seconds that each computes in a step on its own device."""

    layers: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def slowest(self) -> float:
        return max(self.seconds)


class MixedStages(NamedTuple):
    """What is asked, and which kind each rank of the pipeline lies on."""

    alone: tuple[Request, ...]  # the question as if all ranks were of one kind, for each kind
    lies: tuple[int, ...]
    parts: tuple[int, ...]  # the kind that each part of the model lies on; of those on both kinds none is said
    pipeline: Pipeline
    layers: int  # of the model

    def planned(self, layers: tuple[int, ...]) -> Plan:
        """The plan with these layers on its stages."""
        plan = self.alone[0].plan
        assert plan is not None
        split = msgspec.structs.replace(self.pipeline, split=layers)
        return msgspec.structs.replace(
            plan, axes=tuple(split if isinstance(axis, Pipeline) else axis for axis in plan.axes)
        )

    def works(self, kind: int, layers: tuple[int, ...]) -> list[float]:
        """Seconds that each stage computes in a step, all on one kind."""
        asked = resolve(self.alone[kind].changed(plan=self.planned(layers)))
        return stage_work(asked.setting, asked.place)

    def split(self, layers: tuple[int, ...]) -> SplitSeconds:
        """These layers, each stage on the kind it lies on."""
        both = [self.works(kind, layers) for kind in range(len(self.alone))]
        return SplitSeconds(layers, tuple(both[kind][at] for at, kind in enumerate(self.lies)))

    def shared_out(self, first: int) -> tuple[int, ...]:
        """So many layers on the first kind's stages and the rest on the other's, evenly on each."""
        left, parts = [first, self.layers - first], [self.parts.count(0), self.parts.count(1)]
        held: list[int] = []
        for kind in self.parts:
            held.append(-(-left[kind] // parts[kind]))
            left[kind] -= held[-1]
            parts[kind] -= 1
        return tuple(held)

    def step(self, found: SplitSeconds) -> tuple[Resolved, Prediction]:
        """The step with these layers."""
        plan, slowest = self.planned(found.layers), found.seconds.index(found.slowest)
        each = [resolve(one.changed(plan=plan)) for one in self.alone]
        lead = self.lies[slowest]
        asked, places = each[lead], [one.place for one in each]
        known = priced_on_kinds(asked.setting, places, self.lies, lead)
        step = predict_priced(known, asked.setting, asked.place, asked.request.run)
        rates = [one.device.matrix_rate(known.prices.form.kernels) for one in places]
        rates[lead] = step.peak_flops
        peak = sum(rates[kind] for kind in self.lies) / len(self.lies)
        return asked, msgspec.structs.replace(
            step,
            model=asked.request.model,
            utilisation=step.utilisation * step.peak_flops / peak,
            peak_flops=peak,
            **self._memory(known, each),
        )

    def _memory(self, known: PricedProgram, each: list[Resolved]) -> dict[str, Any]:
        """The fields of a prediction that say whether memory is enough: of the stage that has least room on its own
        kind. What a stage would hold on the other decides nothing."""
        peaks = [_peak_of(known, one, self._own(kind)) for kind, one in enumerate(each)]
        by_stage = tuple(peaks[kind].memory.by_stage[at] for at, kind in enumerate(self.lies))
        worst = max(peaks, key=lambda one: (one.outcome, one.filled))
        memory = msgspec.structs.replace(worst.memory, by_stage=by_stage)
        told = {"memory_bytes": memory.device, "memory": memory, "capacity": worst.place.device.memory_bytes}
        told |= {"usable": worst.usable, "most": worst.most} | told_memory(
            memory, worst.usable, worst.most, worst.doubts
        )
        return told | {"chance": min(one.likely for one in peaks)}

    def _own(self, kind: int) -> list[int]:
        return [at for at, one in enumerate(self.lies) if one == kind]


class StagePeak(NamedTuple):
    """What the fullest stage of a kind holds, and the devices that it has to fit."""

    memory: MemoryUse
    setting: Setting
    place: Cluster

    @property
    def usable(self) -> float:
        return usable_bytes(self.setting.trainer, self.place)

    @property
    def most(self) -> float:
        return most_bytes(self.setting.trainer, self.place)

    @property
    def doubts(self) -> tuple[str, ...]:
        return doubts(self.setting.trainer, self.place.device, self.setting.plan)

    @property
    def outcome(self) -> int:
        return VERDICTS.index(verdict(self.memory, self.usable, self.most))

    @property
    def filled(self) -> float:
        return needed_bytes(self.memory) / self.usable

    @property
    def likely(self) -> float:
        return chance(self.memory, self.most, spread(self.doubts))


def _peak_of(known: PricedProgram, asked: Resolved, own: list[int]) -> StagePeak:
    """That of the stages of one kind, with what a trainer adds on its devices."""
    constants = memory_constants(asked.setting, known.program.axes, asked.place)
    used = plan_memory(known._replace(constants=constants), asked.place, own)
    return StagePeak(used, asked.setting, asked.place)


def predicted_stages(
    request: Request, alone: tuple[Request, ...], lies: tuple[int, ...]
) -> tuple[Resolved, Prediction]:
    """The step with the best split of layers, or with the one that the plan says."""
    mixed = _mixed(alone, lies)
    best = mixed.split(mixed.pipeline.split or _best(mixed))
    asked, step = mixed.step(best)
    notes = [_told(mixed, best)]
    even = mixed.shared_out(round(mixed.layers * mixed.parts.count(0) / len(mixed.parts)))
    if not mixed.pipeline.split and even != best.layers:
        alike = mixed.step(mixed.split(even))[1].step_seconds
        notes.append(f"with {_counted(even)} layers on each stage the step would take {show_seconds(alike)}")
    return asked, msgspec.structs.replace(step, cluster=request.place.text, notes=(*notes, *step.notes))


def _mixed(alone: tuple[Request, ...], lies: tuple[int, ...]) -> MixedStages:
    setting = resolve(alone[0]).setting
    partition = lower(setting).partition
    pipeline = setting.plan.axis(Pipeline)
    assert pipeline is not None
    held = [
        {lies[rank] for rank, own in zip(partition.rank, partition.part, strict=True) if own == part}
        for part in range(len(partition.row.parts))
    ]
    parts = tuple(min(own) for own in held)
    if any(len(own) > 1 for own in held) and not pipeline.split:
        what = f"with {pipeline.schedule} the same layers lie on both kinds of devices"
        raise BadInput(what, where="--plan", fix=f"pp{pipeline.ranks}:1f1b")
    return MixedStages(alone, lies, parts, pipeline, facts(setting.graph).layers)


def _best(mixed: MixedStages) -> tuple[int, ...]:
    """Where the slower kind's slowest stage is fastest: the one takes longer with each layer, the other shorter."""
    least, most = mixed.parts.count(0), mixed.layers - mixed.parts.count(1)

    @functools.cache
    def at(first: int) -> SplitSeconds:
        return mixed.split(mixed.shared_out(first))

    def slowest(first: int, kind: int) -> float:
        return max(own for own, lies in zip(at(first).seconds, mixed.lies, strict=True) if lies == kind)

    if most < least:
        what = f"{mixed.layers} layers do not fill {len(mixed.parts)} stages"
        raise BadInput(what, where="--plan", fix=f"pp{mixed.layers} or fewer stages")
    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if slowest(middle, 0) < slowest(middle, 1) else (low, middle)
    near = range(max(least, low - 2), min(most, low + 2) + 1)
    return min((at(first) for first in near), key=lambda found: found.slowest).layers


def _told(mixed: MixedStages, best: SplitSeconds) -> str:
    parts: list[str] = []
    for kind, one in enumerate(mixed.alone):
        held = tuple(count for count, lies in zip(best.layers, mixed.parts, strict=True) if lies == kind)
        busy = max(seconds for seconds, lies in zip(best.seconds, mixed.lies, strict=True) if lies == kind)
        parts.append(f"{_counted(held)} on each stage of {one.place.device.name} ({show_seconds(busy)} of computing)")
    return f"layers: {', '.join(parts)}; the fastest stage waits {show_percent(1 - min(best.seconds) / best.slowest)}"


def _counted(layers: tuple[int, ...]) -> str:
    least, most = min(layers), max(layers)
    return str(least) if least == most else f"{least} to {most}"
