"""The staleness of a run as virtual time foretells it: from how long gradients take, without the order they came in.

Playing a run again in its order says that both sides do the same with what comes. Here the clock decides who comes
first, in many runs: where ranks were given a tempo, with other times from the same spread; else with the times that
they took, drawn anew. Real and virtual runs are then told apart, or not, by how far each lies from the mean of all
others.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from foretell.learning.members import composed
from foretell.learning.staleness import summary
from foretell.learning.world import Worker
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.measure import text_of
from foretell.virtual.pace import even
from foretell.virtual.problems.nothing import Nothing
from foretell.virtual.world import VirtualWorld

RUNS: Final = 99
"""Of virtual time: with the real one a hundred, so that one in a hundred is the least chance that can be told."""

BLOCKS: Final = 10
"""Stretches of a measured run that a virtual one is put together from. A machine is slow for a while, and for all of
its ranks at once: times that lie beside each other stay together."""

USUAL: Final = 0.95
"""The share of runs that lie no farther from all others than noise."""

Staleness: TypeAlias = Counter[int]
Paces: TypeAlias = Sequence[Sequence[float]]
"""Seconds of every gradient of each worker, one after the other."""


class StalenessComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Distances are shares of gradients that lie at another staleness (total variation)."""

    by: str  # whose times: those that were asked for, or those that ranks took
    staleness: dict[str, float]  # mean, most, and how many updates: how often, the mean of all runs of virtual time
    distance: float  # of the measured run from the mean of all others
    noise: float  # what 95 of 100 runs of virtual time do not exceed
    chance: float  # that a run of virtual time lies as far from the others as the measured one: small if they differ


class StalenessSeen(NamedTuple):
    """A measured staleness, and that of runs of virtual time."""

    by: str
    measured: Staleness
    virtual: Sequence[Staleness]


class AtPaces(VirtualWorld):
    """A world in which each gradient takes the time that is given for it."""

    def __init__(self, *given: Any, paces: Paces, **more: Any) -> None:
        super().__init__(*given, **more)
        self._paces = paces

    @property
    def present(self) -> int:
        return len(self.members())  # who has made its last gradient leaves

    def compute(self, worker: Worker) -> None:
        own = self._paces[worker.number]
        if worker.clock < len(own):
            worker.ticket = self.pool.ask(worker.problem, worker.weights, self._rows(worker))
            self.engine.at(self.now + own[worker.clock], self._computed, worker, worker.ticket)
            return
        worker.present = False
        if self.members():
            self.algorithm.on_leave(self, worker)


def at_paces(text: str, paces: Paces, service: float = 0.0) -> Staleness:
    """The staleness of one run in which the clock decides who comes first."""
    made = composed(text)
    given = (Nothing(), made.algorithm, made.topology, None, even(1.0, 0.0, update=service), len(paces))
    world = AtPaces(*given, look_every=10**9, paces=paces)
    world.run()
    return world.staleness


def seen(assignment: Assignment, reports: Sequence[Report]) -> StalenessSeen:
    """What ranks measured, and as many runs of virtual time."""
    measured: Staleness = Counter()
    for report in reports:
        measured.update({int(updates): times for updates, times in report.staleness.items()})
    text, service = text_of(assignment), median(reports[0].served or [0.0])
    taken = _taken(reports)
    runs = (_again(assignment, taken, np.random.default_rng([seed, 4]), seed) for seed in range(RUNS))
    by = "asked" if assignment.tempo.seconds else "taken"
    return StalenessSeen(by, measured, [at_paces(text, paces, service) for paces in runs])


def _taken(reports: Sequence[Report]) -> Paces:
    """Seconds of all gradients with their letters. A server knows best, which sees them come; where not every gradient
    is pushed, workers do."""
    seen_by_server, seen_by_workers = reports[0].returns, [report.paces for report in reports]
    whole = [len(own) for own in seen_by_server] == [len(own) for own in seen_by_workers]
    return seen_by_server if whole else seen_by_workers


def _again(assignment: Assignment, taken: Paces, draws: np.random.Generator, seed: int) -> Paces:
    """Of one run of virtual time: what was taken, drawn anew. Of a tempo other times are drawn, and what letters and
    the machine added to those that were asked for is added to them."""
    places = stretches(taken, min(assignment.dropped, len(taken[0]) - 1), draws)
    if assignment.tempo.seconds:
        asked = _asked(assignment, taken, assignment.seed)
        added = [[had - own for had, own in zip(*both, strict=True)] for both in zip(taken, asked, strict=True)]
        others = _asked(assignment, taken, assignment.seed + 1 + seed)
        return [
            [max(0.0, own + more[at]) for own, at in zip(times, found, strict=True)]
            for times, more, found in zip(others, added, places, strict=True)
        ]
    return [[own[at] for at in found] for own, found in zip(taken, places, strict=True)]


def _asked(assignment: Assignment, like: Paces, seed: int) -> Paces:
    """Seconds that gradients were to take."""
    return [
        [assignment.disturbance.slowness(rank) * one for one in itertools.islice(drawn, len(like[rank]))]
        for rank, drawn in enumerate(assignment.tempo.drawn(rank, seed) for rank in range(len(like)))
    ]


def stretches(paces: Paces, few: int, draws: np.random.Generator) -> list[list[int]]:
    """Which gradients to take one after the other, by worker: the first few as they were (memory, buckets, caches),
    then stretches that begin at any moments of the run, the same for all workers. A worker goes on with the first
    gradient that it began after that moment: the one that was under way would be a long one more often than they are.
    """
    starts = [[0.0, *itertools.accumulate(own[few:-1])] for own in paces]
    whole = min(own[-1] for own in starts)
    if not whole:  # nothing to draw from: they stay as they were
        return [list(range(len(own))) for own in paces]
    found = [list(range(few)) for _ in paces]
    spent, end = [0.0] * len(paces), 0.0
    while any(len(places) < len(own) for places, own in zip(found, paces, strict=True)):
        moment, end = draws.random() * whole, end + whole / BLOCKS
        for worker, own in enumerate(paces):
            at = bisect.bisect_left(starts[worker], moment)
            while spent[worker] <= end:
                found[worker].append(few + at % len(starts[worker]))
                spent[worker] += own[found[worker][-1]]
                at += 1
    return [places[: len(own)] for places, own in zip(found, paces, strict=True)]


def told(found: StalenessSeen) -> StalenessComparison:
    """Whether the measured run could be one of virtual time. If it is, all runs are alike, and each is as likely as any
    other to lie farthest from the rest: so the chance is right however few there are."""
    shares = _shares([found.measured, *found.virtual])
    others = (shares.sum(axis=0) - shares) / (len(shares) - 1)
    distances = np.abs(shares - others).sum(axis=1) / 2
    whole = _sum(found.virtual)
    runs = len(found.virtual)
    return StalenessComparison(
        by=found.by,
        staleness={name: value if name in ("mean", "most") else value / runs for name, value in summary(whole).items()},
        distance=float(distances[0]),
        noise=float(np.quantile(distances[1:], USUAL)),
        chance=float((distances >= distances[0]).mean()),
    )


def _shares(runs: Sequence[Staleness]) -> np.ndarray[Any, Any]:
    """A row a run: the share of its gradients at each staleness."""
    ages = sorted({age for run in runs for age in run})
    counts = np.array([[run[age] for age in ages] for run in runs], dtype=np.float64)
    return counts / counts.sum(axis=1, keepdims=True)


def together(runs: Sequence[StalenessSeen]) -> StalenessSeen:
    """Several runs of the same as one: what is small in each adds up."""
    virtual = [_sum(group) for group in zip(*(run.virtual for run in runs), strict=True)]
    return StalenessSeen(runs[0].by, _sum([run.measured for run in runs]), virtual)


def _sum(runs: Sequence[Staleness]) -> Staleness:
    whole: Staleness = Counter()
    for run in runs:
        whole.update(run)
    return whole


def apart(one: Staleness, other: Staleness) -> float:
    """The share of gradients that would have to lie elsewhere for both to be alike."""
    first, second = _shares([one, other])
    return float(np.abs(first - second).sum() / 2)
