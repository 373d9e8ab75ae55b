"""The staleness of a run as virtual time foretells it: from how long ranks took, without the order in which they came.

Playing a run again in its order says that both sides do the same with what comes. Here the clock decides who comes:
each worker's gradients take the times that its rank took, letters there and back included, and for how long a server
holds somebody up is for the algorithm to say. A machine is slow for all of its ranks at once, so all begin at one
moment of the measured run, any of them. Runs that begin at other moments differ; as far from their mean as they lie, a
real run may lie as well.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from foretell.learning.members import Composed, composed
from foretell.learning.staleness import summary
from foretell.learning.world import Worker
from foretell.runtime.assignment import Report
from foretell.virtual.pace import even
from foretell.virtual.problems.nothing import Nothing
from foretell.virtual.world import World

RUNS: Final = 20
"""Of virtual time, from whose spread noise is told."""


class Foretold(msgspec.Struct, frozen=True, kw_only=True):
    """Distances are shares of gradients that lie at another staleness (total variation)."""

    staleness: dict[str, float]  # mean, most, and how many updates: how often, the mean of all runs
    distance: float  # of the measured run from that mean
    noise: float  # of the run of virtual time that lies farthest from it


class Paces(NamedTuple):
    """Seconds of all gradients of each worker. The first few are like no others: memory, buckets, caches."""

    seconds: Sequence[Sequence[float]]
    few: int = 0


class AtPaces(World):
    """A world whose gradients take as long as those that ranks were at, at the same moment of a measured run."""

    def __init__(self, *given: Any, paces: Paces, **more: Any) -> None:
        super().__init__(*given, **more)
        self._few, self._seconds = paces.few, paces.seconds
        self._ends = [[*itertools.accumulate(times[paces.few :])] for times in paces.seconds]
        self._moment = self.draws.random() * min(ends[-1] for ends in self._ends)

    def compute(self, worker: Worker) -> None:
        if worker.clock < len(self._seconds[worker.number]):
            worker.ticket = self.pool.ask(worker.problem, worker.weights, self._rows(worker))
            seconds = self._seconds[worker.number][self._at(worker)]
            self.engine.at(self.now + seconds, self._computed, worker, worker.ticket)

    def _at(self, worker: Worker) -> int:
        if worker.clock < self._few:
            return worker.clock
        ends = self._ends[worker.number]
        return self._few + bisect.bisect_right(ends, (self._moment + self.now) % ends[-1]) % len(ends)


def foretold(method: Composed, reports: Sequence[Report]) -> Foretold:
    """Beside what ranks measured."""
    seen: Counter[int] = Counter()
    for report in reports:
        seen.update({int(updates): times for updates, times in report.staleness.items()})
    few = len(reports[0].paces) - len(reports[0].steps)
    return beside(seen, method.text, Paces([report.paces for report in reports], few))


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
    made, workers = composed(text), len(paces.seconds)
    given = (Nothing(), made.algorithm, made.topology, None, even(1.0, 0.0), workers)
    world = AtPaces(*given, seed=seed, look_every=10**9, paces=paces)
    world.run()
    return world.staleness


def apart(one: Mapping[int, int], other: Mapping[int, int]) -> float:
    """The share of gradients that would have to lie elsewhere for both to be alike."""
    sums = sum(one.values()), sum(other.values())
    return sum(abs(one.get(age, 0) / sums[0] - other.get(age, 0) / sums[1]) for age in {*one, *other}) / 2
