"""The survey's matrix as the oracle sees it: one row for each framework, model, machine and number of GPUs."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import msgspec

from foretell.bench.row import OK, UNFIT, BenchRow, LearningPoint
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.source import load
from foretell.oracle.predict import Prediction, predict
from foretell.plan.fitness import refusals
from foretell.plan.job import Job
from foretell.plan.policies.precision import Precision
from foretell.plan.setting import Setting
from foretell.plan.text import parse
from foretell.plan.trainer import Trainer, trainer
from foretell.replicas.survey import published
from foretell.replicas.survey.frameworks import FRAMEWORKS, Framework
from foretell.replicas.survey.published import PublishedCurve
from foretell.replicas.survey.workload import COUNTS, SurveyTask, full_precision, task

MACHINES = ("lassen", "thetagpu")


class SurveyCase(NamedTuple):
    """One framework on one model, one machine and so many GPUs."""

    curve: PublishedCurve
    gpus: int

    @property
    def framework(self) -> Framework:
        return FRAMEWORKS[self.curve.framework]

    @property
    def task(self) -> SurveyTask:
        return task(self.curve.model)


def cases() -> tuple[SurveyCase, ...]:
    """All that the survey could have measured: every framework on its machines, 1 to 64 GPUs."""
    return tuple(
        SurveyCase(PublishedCurve(machine, model, one.name), gpus)
        for machine in MACHINES
        for one in FRAMEWORKS.values()
        if machine in one.machines
        for model in one.models
        for gpus in COUNTS
    )


def described(case: SurveyCase) -> Trainer:
    """The trainer of a case. One interpreter that starts kernels for all stages takes longer with each of them."""
    found = trainer(case.framework.trainer)
    times = 1 + case.framework.interpreter * (case.gpus - 1)
    return msgspec.structs.replace(found, host=msgspec.structs.replace(found.host, launch=times * found.host.launch))


class SurveyAnswer(NamedTuple):
    """A prediction, or the rule that refuses it."""

    plan: str
    batch: int
    prediction: Prediction | None
    refusal: str


@functools.lru_cache(maxsize=4096)
def asked(
    case: SurveyCase, precision: str = "", by: Trainer | None = None, microbatches: int = 0, copies: int = 0
) -> SurveyAnswer:
    """What the oracle says of a case; or with another precision, trainer, number of micro-batches or of copies than it
    has."""
    setting, where = setting_of(case, precision, by, microbatches, copies), cluster_of(case)
    batch = setting.job.batch
    for refusal in refusals(setting, where):
        return SurveyAnswer(str(setting.plan), batch, None, refusal.why)
    return SurveyAnswer(str(setting.plan), batch, predict(setting, where), "")


def cluster_of(case: SurveyCase) -> Cluster:
    return catalog.cluster(f"{case.curve.machine}:{case.gpus}")


@functools.lru_cache(maxsize=4096)
def copies_of(case: SurveyCase) -> int:
    """How often a pipeline is there that is as deep as depth gains anything. PipeDream's partitioner, which knows the
    times of layers and messages, replicates stages then (Narayanan et al. 2019, section 3.1)."""
    depth = best = 0
    while case.framework.replicates and 2 * depth <= case.gpus:
        next_depth = 2 * depth or 1
        found = asked(SurveyCase(case.curve, next_depth), copies=1).prediction
        if found is None or found.samples_per_second <= best:
            break
        depth, best = next_depth, found.samples_per_second
    return case.gpus // depth if depth else 1


def setting_of(
    case: SurveyCase, precision: str = "", by: Trainer | None = None, microbatches: int = 0, copies: int = 0
) -> Setting:
    """The plan, model and job of a case."""
    work, one, copies = case.task, case.framework, copies or copies_of(case)
    text, batch = one.rule(case.gpus // copies, work, full_precision(case.curve.machine, case.curve.model))
    text, batch = (f"dp{copies} {text}", batch * copies) if copies > 1 else (text, batch)
    if precision:
        text = f"{text.rpartition(' +')[0]} +{precision}"
    if microbatches:
        text = " ".join(f"+m{microbatches}" if word.startswith("+m") else word for word in text.split())
    plan = parse(text)
    graph = _graph(work, batch // plan.microbatches, plan.policy(Precision).format.activation)
    job = Job(batch=batch, trainer=one.trainer, optimizer=one.optimizer or work.optimizer, sequence=work.sequence)
    return Setting(graph, job, plan, by or described(case))


@functools.lru_cache(maxsize=64)
def _graph(work: SurveyTask, batch: int, dtype: str) -> Graph:
    """The model for one micro-batch over all ranks."""
    return load(work.model, batch, work.sequence or None, dtype)


def uneven(found: Prediction) -> float:
    """The share of a step that is lost because one stage computes longer than the mean."""
    return next((one.share for one in found.bottlenecks if one.name == "workload balancing"), 0.0)


def row(case: SurveyCase) -> BenchRow:
    """A case as a row of a comparison."""
    answer, work, one = asked(case), case.task, case.framework
    found = answer.prediction
    start = BenchRow(
        engine=one.name,
        pair=work.model,
        ranks=case.gpus,
        seed=0,
        batch_rule=one.batch_rule,
        title=one.title,
        synchronous=one.name != "pipedream",
        model=work.model,
        task=work.data,
        plan=answer.plan,
        trainer=one.trainer,
        device=case.curve.machine,
        precision=answer.plan.rpartition("+")[2],
        batch=answer.batch,
        epoch_samples=work.samples,
    )
    if found is None:
        return msgspec.structs.replace(start, status=UNFIT, reason=answer.refusal)
    return msgspec.structs.replace(
        start,
        status=OK,
        microbatches=found.microbatches,
        step_seconds=found.step_seconds,
        low_seconds=found.interval[0],
        high_seconds=found.interval[1],
        phases={name: seconds for name, seconds in found.breakdown.items() if seconds > 0},
        memory_by_rank=tuple(map(round, found.memory.by_stage)) or (round(found.memory_bytes),),
    )


@functools.cache
def rows() -> tuple[BenchRow, ...]:
    """The matrix, predicted."""
    return tuple(map(row, cases()))


@functools.cache
def measured() -> tuple[BenchRow, ...]:
    """The survey's own numbers as rows of the same shape."""
    return tuple(
        _measured(row(SurveyCase(curve, gpus)), curve, gpus, seconds)
        for curve, counts in published.epochs().items()
        for gpus, seconds in counts.items()
    )


def _measured(start: BenchRow, curve: PublishedCurve, gpus: int, epoch: float) -> BenchRow:
    step = epoch * start.batch / start.epoch_samples
    held = published.memory().get(curve, {}).get(gpus)
    return msgspec.structs.replace(
        start,
        status=OK,
        reason="",
        step_seconds=step,
        low_seconds=step,
        high_seconds=step,
        phases=_phases(curve, gpus, step),
        memory_by_rank=(round(held),) if held else (),
        curve=_learnt(curve) if gpus == _fastest(curve) else (),
    )


def _fastest(curve: PublishedCurve) -> int:
    """The number of GPUs at which figure 8 was measured: that of a framework's shortest epoch."""
    counts = published.epochs()[curve]
    return min(counts, key=lambda gpus: counts[gpus])


def _learnt(curve: PublishedCurve) -> tuple[LearningPoint, ...]:
    """Figure 8: accuracy, or the loss that a perplexity is the exponential of."""
    return tuple(
        LearningPoint(
            step=0,
            epoch=one.epoch,
            seconds=60.0 * one.minutes,
            loss=math.log(one.value) if one.metric == "perplexity" else 0.0,
            metric=one.value if one.metric == "accuracy" else None,
            perplexity=one.value if one.metric == "perplexity" else None,
        )
        for one in published.learnt().get(curve, ())
    )


def _phases(curve: PublishedCurve, gpus: int, step: float) -> dict[str, float]:
    """Figure 5's parts of an iteration, as parts of a step; none where it does not have them."""
    whole = published.iterations().get(curve, {}).get(gpus)
    backward = published.backward().get(curve, {}).get(gpus)
    both = published.both_passes().get(curve, {}).get(gpus)
    if not whole or not backward or not both:
        return {}
    parts = {"backward": backward, "forward": both - backward, "input": whole - both}
    return {name: seconds / whole * step for name, seconds in parts.items()}
