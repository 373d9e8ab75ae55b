"""Stale synchronous with caches and its eager variant: what Ho et al. 2013 and Dai et al. 2015 say of staleness."""

from __future__ import annotations

from collections import Counter

import pytest

from foretell.learning.staleness import summary
from foretell.learning.world import Worker
from foretell.taxonomy.systems import system
from foretell.virtual.disturbance import Disturbances
from foretell.virtual.pace import even
from virtual.worlds import world

EVEN = Disturbances(jitter=0.05)
"""A cluster of equal machines, as that of the papers."""


def read(text: str, workers: int, disturbances: Disturbances = EVEN) -> tuple[float, Counter[int], float]:
    """The mean staleness in updates, how often weights were read at each clock differential (Dai et al. 2015, figure 1:
    the clock of the weights less that of the reader), and bytes from the server."""
    run = world(text, workers, pace=even(1.0, 0.02, 0.0, 0.005), disturbances=disturbances, gradients=2000)
    begin, seen = run.compute, Counter[int]()

    def compute(worker: Worker) -> None:
        seen[worker.cache_clock - worker.clock] += 1
        begin(worker)

    run.compute = compute
    run.run()
    return summary(run.staleness)["mean"], seen, run.bytes["down"]


@pytest.mark.parametrize("workers", [4, 8, 16])
@pytest.mark.parametrize("s", [3, 6])
def test_eager_weights_are_fresher(s: int, workers: int) -> None:
    """Reads of ssp spread over all clocks that the bound allows; those of essp lie at the last one or two."""
    lazy, lazily, _ = read(f"ssp:s={s}", workers)
    eager, eagerly, _ = read(f"essp:s={s}", workers)
    assert eager < 0.85 * lazy
    assert min(lazily) == -s and max(lazily.values()) < 2 / (s + 1) * lazily.total()
    assert eagerly[-1] + eagerly[-2] + eagerly[0] > 0.9 * eagerly.total()


def test_petuum_inherits_it() -> None:
    """Its entry is the eager one, on its own topology."""
    eager = system("petuum").simulate
    assert eager.startswith("essp")
    assert read(eager, 8)[0] < 0.85 * read(eager.removeprefix("e"), 8)[0]


def test_a_cache_is_refreshed_when_the_bound_demands_it() -> None:
    """Once in s + 1 gradients, or one sooner where the slowest was behind; without a cache each has its own fetch."""
    cached, fetched = read("ssp:s=3", 8)[2], read("ssp:s=3,cache=0", 8)[2]
    assert 1 / 4 <= cached / fetched < 0.36


def test_uneven_machines_leave_it_less_to_gain() -> None:
    """At a bound that workers reach all the time each of them waits and reads the same; a wide one shows it again."""
    rough = Disturbances(jitter=0.4, often=0.1, times=5.0)
    assert read("essp:s=6", 16, rough)[0] < read("ssp:s=6", 16, rough)[0]
