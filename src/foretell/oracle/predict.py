"""How long a step takes under a plan, what memory each rank needs, and what limits it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from foretell.cost.flops import step_flops
from foretell.cost.memory import MemoryUse, most_bytes, usable_bytes
from foretell.cost.paging import paging_seconds
from foretell.cost.price import PricedProgram, priced
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.oracle.advice import harmless
from foretell.oracle.causes import causes, rank_work
from foretell.oracle.evidence import evidence
from foretell.oracle.explain import Bottleneck, bottlenecks, of_forward
from foretell.oracle.memory_band import band, doubts, spread
from foretell.oracle.similar import SimilarAccuracy, accuracy
from foretell.oracle.training import STEP_ALONE, Training, TrainingRun, step_input, whole
from foretell.oracle.verdict import FAILS, FITS, RETRIES, chance, interval_bytes, needed_bytes, verdict
from foretell.plan.facts import facts
from foretell.plan.job import micro_batch
from foretell.plan.policies.recompute import Recompute
from foretell.plan.setting import Setting
from foretell.plan.trained import as_trained_by
from foretell.program.expand import notes
from foretell.program.rank_program import BlockKind
from foretell.summary import rates
from foretell.timeline.observation import Observation
from foretell.timeline.result import composed
from foretell.units import show_bytes, show_of, show_percent, show_seconds

FASTER: Final = ", 3xTF32"
"""How the peak is told of plans in fp32 whose attention runs on faster units than their other products."""

UNMEASURED: Final = "the 90 % interval was learnt from training steps: no forward pass alone is among the measured runs"

LAYERS: Final = ("forward", "backward", "recompute")
"""Parts of a step that are the work of layers."""


class Prediction(Observation, frozen=True, kw_only=True):
    """An observation that was not made yet, with how far it can be trusted."""

    model: str
    plan: str
    trainer: str
    cluster: str
    device: str
    batch: int
    ranks: int
    microbatches: int
    micro_batch: int  # samples that one rank takes at a time
    sample: str  # what a sample is: sequence, image, sample
    samples_per_second: float
    tokens_per_second: float  # 0 where samples are no sequences
    model_flops: float  # of a step, without what runs again (cost/flops.py)
    hardware_flops: float  # of a step, with what runs again
    precision: str  # of the matrix products, by which the peak is chosen; and of attention, where that is faster
    peak_flops: float  # of one device, in that precision
    utilisation: float  # of the peak of all ranks, by model flops
    imbalance: float  # share of the bubble that is there because stages differ
    interval: tuple[float, float]  # seconds
    band: dict[str, float]  # why it is so wide: factors by reason, whose product lies either way
    narrower: tuple[str, ...]  # what would narrow it
    memory_interval: tuple[float, float]  # bytes that the device reports: 5 % lie below, 5 % above
    memory_band: dict[str, float]  # why it is so wide: factors by reason (`oracle.memory_band`)
    fits: bool
    verdict: str  # fits, fits with retries, fails: see `oracle.verdict`
    needed_bytes: float  # that a device must have at least for it not to fail
    chance: float  # that it does not
    capacity: float  # bytes of a device
    usable: float  # that a run can fill of them with room to spare
    most: float  # that a process can hold of them at all
    bottlenecks: tuple[Bottleneck, ...]
    provenance: dict[str, str]
    notes: tuple[str, ...]
    forward: bool = False  # whether the step is a forward pass alone
    training: Training | None = None  # a whole run, where one is asked about
    accuracy: SimilarAccuracy | None = None  # of similar measured runs; None: none is similar

    def summary(self) -> Iterator[tuple[str, str]]:
        low, high = map(show_seconds, self.interval)
        yield "model", f"{self.model}, batch {self.batch:,}, on {self.cluster}"
        yield "plan", f"{self.plan}, forward pass only" if self.forward else self.plan
        yield "step", f"{show_seconds(self.step_seconds)} ({low} to {high}), MFU {show_percent(self.utilisation)}"
        yield from rates(self.samples_per_second, self.tokens_per_second, self.ranks)
        room = f"{show_of(self.memory_bytes, self.usable)} usable"
        short = {FITS: "", RETRIES: ": fits with retries of the allocator", FAILS: ": does not fit"}
        yield "memory", f"{room}{short[self.verdict]}"


def told_memory(used: MemoryUse, usable: float, most: float, reasons: Collection[str]) -> dict[str, Any]:
    """The fields of a prediction that say whether memory is enough, with the reasons to doubt it."""
    told, wide = verdict(used, usable, most), spread(reasons)
    return {
        "memory_interval": interval_bytes(used, most, wide),
        "memory_band": band(reasons),
        "fits": told == FITS,
        "verdict": told,
        "needed_bytes": needed_bytes(used),
        "chance": chance(used, most, wide),
    }


T = TypeVar("T", bound=Prediction)


def predict(setting: Setting, cluster: Cluster, run: TrainingRun = STEP_ALONE) -> Prediction:
    """Predict one step of a plan that fits, and a whole run of such steps where one is asked about."""
    return predict_priced(priced(setting, cluster), setting, cluster, run)


def predict_priced(plan: PricedProgram, setting: Setting, cluster: Cluster, run: TrainingRun) -> Prediction:
    """The same of a program that is priced, perhaps otherwise than on this cluster alone."""
    program, device = plan.program, cluster.device
    usable, most = usable_bytes(setting.trainer, cluster), most_bytes(setting.trainer, cluster)
    made = composed(plan, cluster)
    used, breakdown = made.memory, made.breakdown
    known = evidence(program, cluster, breakdown, made.step_seconds)
    paged = paging_seconds(plan, beyond := needed_bytes(used) - usable)  # what is in reserve nobody touches
    passes = made.step_seconds + paged
    low, high = known.interval(passes)
    step, low, high = (step_input(one, setting, cluster, run.conditions) for one in (passes, low, high))
    breakdown |= {"paging": paged} if paged else {}
    breakdown |= {"input": step - passes} if step > passes else {}
    rule, spared = setting.plan.policy(Recompute).rule, program.partition.row.spared
    work = step_flops(_trained(setting), rule, device, plan.prices.form, setting.trainer, spared)
    many = program.plan.microbatches
    flops = work.model * many
    tokens = facts(setting.graph).sequence * setting.job.batch
    ranks, forward = setting.plan.ranks, not facts(setting.graph).trains
    found = Prediction(
        step_seconds=step,
        memory_bytes=used.device,
        memory=used,
        breakdown=breakdown,
        model=program.graph.name,
        plan=str(program.plan),
        trainer=program.trainer.name,
        cluster=cluster.text,
        device=device.name,
        batch=setting.job.batch,
        ranks=ranks,
        microbatches=many,
        micro_batch=micro_batch(setting.job, setting.plan),
        sample=facts(setting.graph).sample,
        samples_per_second=setting.job.batch / step,
        tokens_per_second=tokens / step,
        model_flops=flops,
        hardware_flops=work.hardware * many,
        precision=plan.prices.form.kernels + (FASTER if work.faster else ""),
        peak_flops=work.peak,
        utilisation=flops / (step * ranks * work.peak),
        imbalance=made.imbalance / breakdown["bubble"] if "bubble" in breakdown else 0.0,
        interval=(low, high),
        band=known.reasons_told(),
        narrower=known.narrower(),
        **told_memory(used, usable, most, doubts(setting.trainer, device, setting.plan)),
        capacity=device.memory_bytes,
        usable=usable,
        most=most,
        bottlenecks=(),
        provenance=known.provenance(),
        notes=(*notes(program), *_paged(beyond, paged), *([UNMEASURED] if forward else [])),
        forward=forward,
        accuracy=None if forward else accuracy(device.name, program.trainer.name, ranks, known.factors()),
    )
    amount = whole(found, setting, cluster, run) if run.asked else None
    whole_run = msgspec.structs.replace(found, training=amount)
    limits = tuple(harmless(lambda: _limits(plan, cluster, whole_run)))
    return msgspec.structs.replace(whole_run, bottlenecks=limits)


def _paged(beyond: float, seconds: float) -> tuple[str, ...]:
    """What goes to the host and back in each step, where memory may be more than the device has."""
    if not seconds:
        return ()
    least = f"{show_seconds(seconds)} at least, which the step has in it"
    return (f"{show_bytes(beyond)} beyond the device page to the host and back in a step: {least}",)


def timed(setting: Setting, cluster: Cluster) -> Observation:
    """The step that is predicted, what it is made of and what it holds, without all that is told with it."""
    plan = priced(setting, cluster)
    made = composed(plan, cluster)
    paged = paging_seconds(plan, needed_bytes(made.memory) - usable_bytes(setting.trainer, cluster))
    passes = made.step_seconds + paged
    step = step_input(passes, setting, cluster, STEP_ALONE.conditions)
    breakdown = (
        made.breakdown | ({"paging": paged} if paged else {}) | ({"input": step - passes} if step > passes else {})
    )
    return Observation(step, made.memory.device, made.memory, breakdown)


def explained(found: T, setting: Setting, cluster: Cluster) -> T:
    """A prediction that measurements corrected, with what limits the step as it is now."""
    plan = priced(setting, cluster)
    slower = _computing(found.breakdown) / _computing(composed(plan, cluster).breakdown)
    limits = tuple(harmless(lambda: _limits(plan, cluster, found, slower)))
    return msgspec.structs.replace(found, bottlenecks=limits)


def _limits(plan: PricedProgram, cluster: Cluster, found: Prediction, slower: float = 1.0) -> tuple[Bottleneck, ...]:
    """The rules that fire; `slower` is how much longer than by its prices a rank computes."""
    why = causes(plan.program, plan.prices, found.breakdown, lambda kind: slower * _compute(plan, kind))
    why = why._replace(redundant=slower * why.redundant, uneven=found.imbalance)
    memory = cluster.device.memory_bytes
    told = plan.program.plan
    limits = bottlenecks(found.breakdown, found.step_seconds, found.memory, memory, why, found.training, told)
    return tuple(map(of_forward, limits) if found.forward else limits)


def stage_work(setting: Setting, cluster: Cluster) -> list[float]:
    """Seconds that each rank of the pipeline computes in layers, in a step; one number where there is none."""
    plan = priced(setting, cluster)
    return rank_work(plan.program, lambda kind: _compute(plan, kind))


def _computing(breakdown: Mapping[str, float]) -> float:
    """Seconds of a step that a rank computes in layers."""
    return sum(breakdown.get(name, 0.0) for name in LAYERS)


def _compute(plan: PricedProgram, kind: BlockKind) -> float:
    """Seconds that one micro-batch computes in a kind of layer, both passes."""
    forward, backward, *_ = plan.kinds[kind].parts
    return sum(own.get(name, 0.0) for own in (forward, backward) for name in LAYERS)


def _trained(setting: Setting) -> Graph:
    """The model with its adapters, where it has some."""
    return as_trained_by(setting.plan, setting.graph)
