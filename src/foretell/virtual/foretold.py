"""The staleness of a run as virtual time foretells it: from how long ranks took, without the order in which they came.

Playing a run again in its order says that both sides do the same with what comes. Here the clock decides who comes:
each worker's gradients take the times that its rank took, from any of them on (what is slow in a row stays so), and
letters the time that they take when nobody is in the way. Runs that begin at other ones differ; as far from their mean
as they lie, a real run may lie as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from foretell.learning.members import Composed, composed
from foretell.learning.staleness import summary
from foretell.learning.world import Worker
from foretell.runtime.assignment import Report
from foretell.virtual.pace import Flight, Pace
from foretell.virtual.problems.nothing import Nothing
from foretell.virtual.world import World

RUNS: Final = 20
"""Of virtual time, from whose spread noise is told."""

UNDISTURBED: Final = 0.1
"""The share of a rank's waits that no queue made longer: the longest of these is what letters take."""


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """Distances are shares of gradients that lie at another staleness (total variation)."""

    staleness: dict[str, float]  # mean, most, and how many updates: how often, the mean of all runs
    distance: float  # of the measured run from that mean
    noise: float  # of the run of virtual time that lies farthest from it


class Paces(NamedTuple):
    """What ranks took: seconds of each of a worker's gradients, and of a letter to or from it."""

    gradients: Sequence[Sequence[float]]
    letters: Sequence[float]
    count: int  # gradients that each worker makes


class AtPaces(World):
    """A world whose gradients take given times, one after the other and round again."""

    def __init__(self, *given: Any, paces: Paces, **more: Any) -> None:
        super().__init__(*given, **more)
        self._paces = paces
        self._first = [int(self.draws.integers(len(times))) for times in paces.gradients]

    def compute(self, worker: Worker) -> None:
        if worker.clock < self._paces.count:
            times, at = self._paces.gradients[worker.number], self._first[worker.number] + worker.clock
            worker.ticket = self.pool.ask(worker.problem, worker.weights, self._rows(worker))
            self.engine.at(self.now + times[at % len(times)], self._computed, worker, worker.ticket)


class Letters:
    """Every worker is so far from all others; letters are not in each other's way."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = [*seconds, 0.0]  # the server's own part is in the workers'

    def flight(self, source: int, target: int, size: float) -> Flight:
        last = len(self._seconds) - 1
        return Flight(max(self._seconds[min(source, last)], self._seconds[min(target, last)]), 0.0)

    def ports(self, source: int, target: int) -> tuple[int, int]:
        return source, target

    def port_count(self, nodes: int) -> int:
        return nodes


def foretold(method: Composed, reports: Sequence[Report], axis: str) -> Foretold:
    """Beside what ranks measured."""
    seen: Counter[int] = Counter()
    for report in reports:
        seen.update({int(updates): times for updates, times in report.staleness.items()})
    return beside(seen, method.text, Paces(*zip(*_measured(reports, axis), strict=True), count=len(reports[0].losses)))


def beside(seen: Counter[int], text: str, paces: Paces) -> Foretold:
    """A measured staleness and that of runs of virtual time at these paces."""
    runs = [at_paces(text, paces, seed) for seed in range(RUNS)]
    mean: Counter[int] = Counter()
    for run in runs:
        mean.update(run)
    whole = summary(mean)
    return Foretold(
        staleness={name: value if name in ("mean", "most") else value / RUNS for name, value in whole.items()},
        distance=apart(seen, mean),
        noise=max(apart(run, mean) for run in runs),
    )


def at_paces(text: str, paces: Paces, seed: int) -> Counter[int]:
    """The staleness of one run in which the clock decides who comes first."""
    made, workers = composed(text), len(paces.gradients)
    pace = Pace(1.0, 0.0, 0.0, 1.0, Letters(paces.letters))
    world = AtPaces(
        Nothing(), made.algorithm, made.topology, None, pace, workers, seed=seed, look_every=10**9, paces=paces
    )
    world.run()
    return world.staleness


def apart(one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """The share of gradients that would have to lie elsewhere for both to be alike."""
    sums = sum(one.values()), sum(other.values())
    return sum(abs(one.get(age, 0) / sums[0] - other.get(age, 0) / sums[1]) for age in {*one, *other}) / 2


def _measured(reports: Sequence[Report], axis: str) -> Iterator[tuple[list[float], float]]:
    """Of each rank: its gradients without the waits, and half of what it waits where nobody is in the way."""
    for report in reports:
        waits = report.phases.get(f"exposed.{axis}", [0.0] * len(report.steps))
        yield (
            [step - wait for step, wait in zip(report.steps, waits, strict=True)],
            float(np.quantile(waits, UNDISTURBED)) / 2,
        )
