"""From what every rank has seen to one measurement, in the shape of a prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import fmean, median

import msgspec

from foretell.cost.memory import MemoryUse
from foretell.learning.gradient_noise import NoiseScale, noise_scale
from foretell.learning.staleness import summary
from foretell.plan.facts import facts
from foretell.plan.text import parse
from foretell.runtime.assignment import Assignment, Collective, HeldOutCheck, Report
from foretell.runtime.methods.choice import method, round_of
from foretell.runtime.restart_log import RestartLog
from foretell.timeline.observation import Observation
from foretell.units import show_bytes, show_seconds
from foretell.validation.score import quantile

PHASES = {"exchange": "other"}
"""Phases of the clock that a breakdown has another key for."""


class Samples(msgspec.Struct, frozen=True):
    """How far the measured steps lie apart, in seconds; where ranks meet every few steps, the means of so many."""

    p10: float
    p90: float
    n: int
    of: int = 1  # steps of one sample


class Measurement(Observation, frozen=True, kw_only=True):
    """A run that was observed. Its breakdown is that of the rank that works most; unattributed time is `other`."""

    model: str
    plan: str
    trainer: str
    batch: int
    ranks: int
    samples: Samples
    losses: list[float]  # of every step, dropped ones too
    collectives: tuple[Collective, ...]  # of a step of the rank that works most
    by_rank: dict[str, list[float]]  # median seconds of each phase, rank by rank
    busy_by_rank: dict[str, list[float]] = {}  # noqa: RUF012 (msgspec copies it) of these, on a core
    memory_by_rank: tuple[int, ...] = ()  # bytes of tensors at the fullest moment
    validation: tuple[HeldOutCheck, ...] = ()  # looks at held-out data
    noise: NoiseScale | None = None  # of gradients, where somebody looked at them
    lives: RestartLog | None = None  # of a run with checkpoints: its failures, restarts and goodput
    method: str = ""  # an algorithm in whose way ranks went at their own pace
    staleness: dict[str, float] = {}  # noqa: RUF012 mean, most, and how many updates: how often
    pace: float = 0.0  # seconds a gradient was to take in the mean, by waiting, before stragglers; 0: as it computes
    late: int = 0  # gradients that took longer
    idle: float = 0.0  # share of a step in which a GPU waited for its host; 0 on processors, which are their hosts
    rehearsed: tuple[int, ...] = ()  # ranks that ran alone, of a rehearsal; none: all ran
    depths: tuple[int, ...] = ()  # layers of the two models that it was extended from; none: of its own
    record: str = ""

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model}, batch {self.batch:,}, on {self.ranks} ranks"
        yield "plan", self.plan
        spread = f"{show_seconds(self.samples.p10)} to {show_seconds(self.samples.p90)}"
        yield "step", f"{show_seconds(self.step_seconds)} ({spread})"
        yield "memory", show_bytes(self.memory_bytes)
        if self.losses:
            yield "loss", f"{self.losses[0]:.4g} to {self.losses[-1]:.4g}"


def check(measured: Measurement) -> None:
    """Raise a ValueError for figures that no run has: a record may say anything, and shares of them are taken."""
    figures = {
        "step_seconds": measured.step_seconds,
        "memory_bytes": measured.memory_bytes,
        "memory.allocated": measured.memory.allocated,
        "batch": measured.batch,
        "ranks": measured.ranks,
    }
    for name, value in figures.items():
        if not 0 < value <= LARGEST:
            raise ValueError(f"{name} is {value}")


LARGEST = 1e18
"""Above every second, byte and sample of a step."""


def measurement(assignment: Assignment, plan: str, batch: int, reports: Sequence[Report]) -> Measurement:
    """One observation of what all ranks have seen."""
    length, asked = _round(assignment, reports), assignment.rehearsal
    reports = [_by_rounds(report, length) for report in reports]
    steps = [max(times) for times in _step_by_step([report.steps for report in reports])]
    step = median(steps)
    critical = critical_rank(reports)
    worst = max(reports, key=lambda report: report.allocated)
    return Measurement(
        step_seconds=step,
        memory_bytes=worst.allocated,
        memory=_memory(reports, worst),
        breakdown=_breakdown(critical, step),
        model=assignment.model,
        plan=plan,
        trainer=assignment.trainer,
        batch=batch,
        ranks=assignment.setting.plan.ranks if asked else len(reports),
        samples=Samples(quantile(sorted(steps), 0.1), quantile(sorted(steps), 0.9), len(steps), length),
        losses=_losses(reports),
        collectives=tuple(critical.collectives),
        by_rank=_by_rank([report.phases for report in reports]),
        busy_by_rank=_by_rank([report.busy for report in reports]),
        memory_by_rank=tuple(report.allocated for report in reports),
        validation=tuple(reports[0].checks),
        noise=_noise(assignment, reports[0]),
        method=text_of(assignment),
        staleness=_staleness(reports),
        pace=assignment.tempo.seconds,
        late=sum(report.late for report in reports),
        idle=critical.idle,
        rehearsed=tuple(report.rank for report in reports) if asked else (),
        depths=asked.depths if asked else (),
    )


def _noise(assignment: Assignment, report: Report) -> NoiseScale | None:
    """The noise scale of a run that was looked at; all ranks have seen the same."""
    return noise_scale(report.looks, facts(assignment.setting.graph).sequence) if report.looks else None


def _round(assignment: Assignment, reports: Sequence[Report]) -> int:
    """Steps of a round, where at least one was measured."""
    length = round_of(method(parse(assignment.plan), assignment.method))
    return length if len(reports[0].steps) >= length else 1


def _by_rounds(report: Report, length: int) -> Report:
    """The same with the means of so many steps in a row in the place of each: a step without an exchange is none to
    compare with a prediction, which has a share of it in each."""
    if length == 1:
        return report

    def means(seconds: Sequence[float]) -> list[float]:
        return [fmean(seconds[at : at + length]) for at in range(0, len(seconds) - length + 1, length)]

    phases, busy = ({name: means(times) for name, times in of.items()} for of in (report.phases, report.busy))
    return msgspec.structs.replace(report, steps=means(report.steps), phases=phases, busy=busy)


def text_of(assignment: Assignment) -> str:
    """The algorithm that ran, as `foretell simulate` writes it; empty where all ranks stepped together."""
    found = method(parse(assignment.plan), assignment.method)
    return found.text if found else ""


def _staleness(reports: Sequence[Report]) -> dict[str, float]:
    """Over all servers."""
    seen: Counter[int] = Counter()
    for report in reports:
        seen.update({int(updates): times for updates, times in report.staleness.items()})
    return summary(seen)


def critical_rank(reports: Sequence[Report]) -> Report:
    """The rank that works most: where a rank waits, others are the slow ones."""
    return max(reports, key=_work)


def _work(report: Report) -> float:
    return sum(median(report.phases.get(name, [0.0])) for name in ("forward", "backward", "optimizer"))


def _breakdown(report: Report, step: float) -> dict[str, float]:
    """The medians of the phases; they add up to the step, whatever the medians do."""
    found: dict[str, float] = {}
    for name, seconds in report.phases.items():
        key = PHASES.get(name, name)
        found[key] = found.get(key, 0.0) + median(seconds)
    for axis, seconds in report.exposed.items():  # of a GPU: it lies in the backward pass, where gradients are summed
        hidden = min(seconds, found.get("backward", 0.0))
        found |= {"backward": found.get("backward", 0.0) - hidden, f"exposed.{axis}": hidden}
    told = sum(found.values())
    if told > step:
        return {name: seconds * step / told for name, seconds in found.items()}
    found["other"] = found.get("other", 0.0) + step - told
    return found


def _memory(reports: Sequence[Report], worst: Report) -> MemoryUse:
    stages: dict[int, int] = {}
    for report in reports:
        place = report.place.get("pp", 0)
        stages[place] = max(stages.get(place, 0), report.allocated)
    return MemoryUse(
        allocated=worst.allocated,
        reserved=worst.reserved or worst.allocated,
        device=worst.reserved or worst.allocated,
        by_stage=tuple(float(stages[place]) for place in sorted(stages)),
        by_kind={"resting": float(worst.resting), "working": float(worst.allocated - worst.resting)},
        peak_moment=f"rank {worst.rank}, counted by the allocator",
    )


def _losses(reports: Sequence[Report]) -> list[float]:
    """The mean over the ranks that see a loss: all of them have equal shares of the samples."""
    seen = [report.losses for report in reports if report.losses]
    return [sum(losses) / len(losses) for losses in _step_by_step(seen)]


def _step_by_step(ranks: Sequence[Sequence[float]]) -> Iterator[list[float]]:
    """What ranks have of each step: some end earlier, where others learn from them."""
    for at in range(max(map(len, ranks), default=0)):
        yield [one[at] for one in ranks if at < len(one)]


def _by_rank(ranks: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Medians of what each rank has seen."""
    names = dict.fromkeys(name for phases in ranks for name in phases)
    return {name: [median(phases.get(name, [0.0])) for phases in ranks] for name in names}
