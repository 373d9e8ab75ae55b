"""Every run of a study predicted, and the study's line of the scoreboard."""

from __future__ import annotations

import functools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from foretell.errors import ForetellError
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.model.graph import Graph
from foretell.model.resize import ANY, with_samples
from foretell.model.source import load
from foretell.oracle.verdict import RETRIES, verdict
from foretell.plan.fitness import refusals
from foretell.plan.plan import Plan
from foretell.plan.setting import Setting
from foretell.plan.trainer import trainer
from foretell.timeline.observation import Observation
from foretell.validation import score
from foretell.validation.score import Errors, FitVerdicts, Regret, ScoredPair, Verdict
from foretell.validation.sources import by_memory
from foretell.validation.study import MeasuredCall, MeasuredPeak, MeasuredRun, Study

STATED: Final = "as stated"
ASSUMED: Final = "with assumptions"
"""Subsets of a study that has runs of both kinds: its source says all that a plan says, or not."""


class ComparedMemory(Protocol):
    """Bytes of the worst rank; `by_stage` are device bytes of each pipeline rank."""

    @property
    def allocated(self) -> float: ...
    @property
    def reserved(self) -> float: ...
    @property
    def device(self) -> float: ...
    @property
    def by_stage(self) -> tuple[float, ...]: ...


class ComparedPrediction(Protocol):
    """What is compared of a prediction."""

    @property
    def step_seconds(self) -> float: ...
    @property
    def memory(self) -> ComparedMemory: ...
    @property
    def fits(self) -> Any: ...
    @property
    def usable(self) -> float: ...
    @property
    def most(self) -> float: ...
    @property
    def chance(self) -> float: ...
    @property
    def memory_band(self) -> Mapping[str, float]: ...
    @property
    def interval(self) -> tuple[float, float]: ...


class EitherMemory(NamedTuple):
    """Geometric means."""

    allocated: float
    reserved: float
    device: float
    by_stage: tuple[float, ...] = ()


class EitherPrediction(NamedTuple):
    """What is predicted of a run that may have been one of several plans."""

    each: tuple[ComparedPrediction, ...]

    @property
    def step_seconds(self) -> float:
        return statistics.geometric_mean(one.step_seconds for one in self.each)

    @property
    def memory(self) -> EitherMemory:
        all_of = [one.memory for one in self.each]
        return EitherMemory(
            statistics.geometric_mean(one.allocated for one in all_of),
            statistics.geometric_mean(one.reserved for one in all_of),
            statistics.geometric_mean(one.device for one in all_of),
        )

    @property
    def fits(self) -> bool:
        """Whether one of them does."""
        return any(one.fits for one in self.each)

    @property
    def usable(self) -> float:
        return max(one.usable for one in self.each)

    @property
    def most(self) -> float:
        return max(one.most for one in self.each)

    @property
    def chance(self) -> float:
        """That of the one that is likeliest to fit."""
        return max(one.chance for one in self.each)

    @property
    def memory_band(self) -> Mapping[str, float]:
        """That of the first: they are plans of one trainer on one cluster."""
        return self.each[0].memory_band

    @property
    def interval(self) -> tuple[float, float]:
        """From the least that any of them may take to the most."""
        return min(one.interval[0] for one in self.each), max(one.interval[1] for one in self.each)


Predictor: TypeAlias = Callable[[Setting, Cluster], ComparedPrediction]


class ComparedRun(NamedTuple):
    """A run with what was foretold of it; a refusal's rule where the plan was refused."""

    row: MeasuredRun
    prediction: ComparedPrediction | None
    rule: str  # empty where the plan was predicted

    @property
    def time(self) -> ScoredPair | None:
        """None where one side has no time."""
        if self.prediction is None or not self.row.step_seconds:
            return None
        return ScoredPair(self.prediction.step_seconds, self.row.step_seconds)

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies within the predicted interval."""
        if self.prediction is None or not self.row.step_seconds:
            return None
        low, high = self.prediction.interval
        return low <= self.row.step_seconds <= high

    @property
    def memory(self) -> Iterator[ScoredPair]:
        """Each printed number against the same one of ours."""
        if self.prediction is not None:
            for printed in self.row.memory:
                yield ScoredPair(memory_like(self.prediction.memory, printed), printed.bytes)

    @property
    def verdict(self) -> Verdict:
        """Whether it was foretold to run, and whether it ran."""
        ran = self.row.outcome == "ok"
        if self.prediction is None:
            return Verdict(False, ran, 0.0)
        return Verdict(runs(self.prediction), ran, self.prediction.chance)


def runs(found: ComparedPrediction) -> bool:
    """Whether a run has the memory that it needs, if only while its allocator retries."""
    if isinstance(found, EitherPrediction):
        return any(map(runs, found.each))
    return bool(found.fits) or verdict(found.memory, found.usable, found.most) == RETRIES


class Subset(msgspec.Struct, frozen=True):
    """A part of a study."""

    n: int
    time: Errors | None
    memory: Errors | None
    fits: FitVerdicts | None
    rank_correlation: float | None
    regret: Regret | None
    inside: float | None  # share of measured times within the predicted interval


class Scores(msgspec.Struct, frozen=True):
    """A study's line of the scoreboard. total = n + refused + not scored."""

    study: str
    family: str
    total: int
    n: int
    refused: int
    refused_though_ran: int
    refused_rules: dict[str, int]
    not_scored: int
    not_scored_reasons: dict[str, int]
    time: Errors | None
    memory: Errors | None
    fits: FitVerdicts | None
    rank_correlation: float | None
    regret: Regret | None
    inside: float | None
    subsets: dict[str, Subset]


def memory_like(found: ComparedMemory, printed: MeasuredPeak) -> float:
    """Our number of the same kind, of the same rank.

    Stages are given as the device sees them; the first stage's other numbers are taken to lie as far
    below as the worst rank's do.
    """
    number = {"allocated": found.allocated, "reserved": found.reserved, "device": found.device}[printed.number]
    if printed.rank == "worst" or len(found.by_stage) < 2:
        return number
    return max(0.0, found.by_stage[0] - (found.device - number))


def compare(
    rows: Iterable[MeasuredRun], predict: Predictor, told: Callable[[], None] = lambda: None
) -> list[ComparedRun]:
    """Every run predicted, in the order of the rows; each model is loaded once."""
    numbered = list(enumerate(rows))
    numbered.sort(key=lambda item: (in_order(item[1]), item[0]))
    found: dict[int, ComparedRun] = {}
    for at, row in numbered:
        found[at] = compared_run(row, predict)
        told()
    return [found[at] for at in sorted(found)]


def in_order(row: MeasuredRun) -> tuple[str, int]:
    """Runs that stand together are predicted after one another: of one model, and so many samples."""
    return row.model, _samples(row)


@functools.lru_cache(maxsize=1)
def _graph(model: str, samples: int) -> Graph:
    return with_samples(_model(model), samples)


@functools.lru_cache(maxsize=1)
def _model(model: str) -> Graph:
    """A model for some number of samples: those of a study differ in that more often than in anything else."""
    return load(model, ANY)


def _samples(row: MeasuredRun, plan: Plan | None = None) -> int:
    """Samples of one micro-batch over all ranks."""
    return max(1, row.job.batch // (plan or row.plan).microbatches)


def question(row: MeasuredRun, plan: Plan | None = None) -> tuple[Setting, Cluster]:
    """What a run answers, under its plan or another that it may have been."""
    setting = Setting(_graph(row.model, _samples(row, plan)), row.job, plan or row.plan, trainer(row.trainer))
    return setting, catalog.cluster(row.cluster)


def compared_run(row: MeasuredRun, predict: Predictor) -> ComparedRun:
    """The plan as stated, or all that the run may have been: it was none of those that are refused."""
    tried = [_predicted(row, plan, predict) for plan in (row.plan, *row.others)]
    found = tuple(one for one in tried if not isinstance(one, str))
    if not found:
        return ComparedRun(row, None, next(one for one in tried if isinstance(one, str)))
    return ComparedRun(row, found[0] if len(found) == 1 else EitherPrediction(found), "")


def _predicted(row: MeasuredRun, plan: Plan, predict: Predictor) -> ComparedPrediction | str:
    """What is predicted, or the rule that refuses it."""
    try:
        setting, cluster = question(row, plan)
        refusal = next(refusals(setting, cluster), None)
        return as_timed(predict(setting, cluster), row) if refusal is None else refusal.rule
    except ForetellError as problem:  # no program or no price is written for it
        return f"not predicted: {problem.what.splitlines()[0]}"


def as_timed(found: ComparedPrediction, row: MeasuredRun) -> ComparedPrediction:
    """The prediction of what was timed: where that is forward and backward passes, without the optimizer's step."""
    if row.timed == "step" or not isinstance(found, Observation):
        return found
    left = timed_seconds(found, row)
    low, high = (bound * left / found.step_seconds for bound in found.interval)
    return msgspec.structs.replace(found, step_seconds=left, interval=(low, high))


def timed_seconds(found: Observation, row: MeasuredRun) -> float:
    """Of what was timed."""
    return found.step_seconds - (found.breakdown.get("optimizer", 0.0) if row.timed == "passes" else 0.0)


def scores(study: Study, compared: list[ComparedRun]) -> Scores:
    """The study's line; of a study that was cut short, that of what was compared."""
    if study.calls:
        return _of_calls(study)
    refused = [one for one in compared if one.prediction is None]
    whole = subset(compared)
    parts = _parts(compared)
    return Scores(
        study=study.name,
        family=study.family,
        total=len(compared) + len(study.not_scored),
        n=len(compared) - len(refused),
        refused=len(refused),
        refused_though_ran=sum(one.row.outcome == "ok" for one in refused),
        refused_rules=_counted(one.rule for one in refused),
        not_scored=len(study.not_scored),
        not_scored_reasons=_counted(item.reason for item in study.not_scored),
        time=whole.time,
        memory=whole.memory,
        fits=whole.fits,
        rank_correlation=whole.rank_correlation,
        regret=whole.regret,
        inside=whole.inside,
        subsets={tag: subset(own) for tag, own in parts.items()},
    )


def _of_calls(study: Study) -> Scores:
    """The line of collectives or kernels: time alone."""
    whole = _calls(study.calls)
    tags = dict.fromkeys(tag for one in study.calls for tag in one.subsets)
    return Scores(
        study=study.name,
        family=study.family,
        total=study.total,
        n=whole.n,
        refused=0,
        refused_though_ran=0,
        refused_rules={},
        not_scored=len(study.not_scored),
        not_scored_reasons=_counted(item.reason for item in study.not_scored),
        time=whole.time,
        memory=None,
        fits=None,
        rank_correlation=None,
        regret=None,
        inside=None,
        subsets={tag: _calls(one for one in study.calls if tag in one.subsets) for tag in tags},
    )


def _calls(some: Iterable[MeasuredCall]) -> Subset:
    pairs = [ScoredPair(one.predicted, one.seconds) for one in some]
    return Subset(len(pairs), score.errors(pairs), None, None, None, None, None)


def _parts(compared: list[ComparedRun]) -> dict[str, list[ComparedRun]]:
    """The runs of each subset; first, where the source left something open, those with and without assumptions."""
    mixed = any(one.row.assumed for one in compared)
    parts: dict[str, list[ComparedRun]] = {STATED: [], ASSUMED: []} if mixed else {}
    for one in compared:
        kind = [ASSUMED if one.row.assumed else STATED] if mixed else []
        for tag in (*kind, *one.row.subsets):
            parts.setdefault(tag, []).append(one)
    return parts


def subset(compared: list[ComparedRun]) -> Subset:
    """Scores of some runs."""
    groups = [[one.time for one in plans_of(group) if one.time is not None] for group in choices(compared)]
    return Subset(
        n=sum(one.prediction is not None for one in compared),
        time=score.errors(one.time for one in compared if one.time is not None),
        memory=score.errors(pair for one in compared for pair in one.memory),
        fits=score.fits(one.verdict for one in compared if by_memory(one.row)),
        rank_correlation=score.rank_correlation(groups),
        regret=score.regret(groups),
        inside=_share([one.inside for one in compared if one.inside is not None]),
    )


def choices(compared: Iterable[ComparedRun]) -> list[list[ComparedRun]]:
    """Runs of the same job on the same cluster together: what somebody had to choose from."""
    groups: dict[tuple[str, ...], list[ComparedRun]] = {}
    for one in compared:
        groups.setdefault(one.row.choice, []).append(one)
    return list(groups.values())


def plans_of(choice: Iterable[ComparedRun]) -> list[ComparedRun]:
    """Every plan that was timed, once: of several runs of one plan the one in the middle.

    Runs of one plan are no plans to choose between; that they differ says how well it was measured.
    """
    runs: dict[str, list[tuple[float, ComparedRun]]] = {}
    for one in choice:
        if one.time is not None:
            runs.setdefault(str(one.row.plan), []).append((one.time.measured, one))
    ordered = (sorted(own, key=lambda run: run[0]) for own in runs.values())
    return [own[(len(own) - 1) // 2][1] for own in ordered]


def _share(inside: list[bool]) -> float | None:
    return sum(inside) / len(inside) if inside else None


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())
