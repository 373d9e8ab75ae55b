"""Data that is not the same everywhere: each worker has its own mix of classes, and its own amount of them.

Each class is shared out over the workers by a Dirichlet distribution (Hsu et al. 2019, arXiv 1909.06335): a
concentration of 100 is nearly even, 1 uneven, 0.1 leaves a worker with a few classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from foretell.errors import BadInput
from foretell.learning.vector import Rows, Vector
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan


class Skew(NamedTuple):
    """Who has what of the data."""

    mixes: Vector  # a row a worker: the share of each class in its data
    amounts: tuple[float, ...]  # of all data, by worker

    def classes(self, worker: int, count: int, draws: np.random.Generator) -> Rows:
        """The classes of a worker's next samples."""
        return draws.choice(self.mixes.shape[1], size=count, p=self.mixes[worker])


def skew(workers: int, classes: int, concentration: float, seed: int) -> Skew:
    """The same for the same seed, on real ranks and in virtual time."""
    if not 1e-3 <= concentration <= 1e6:
        fix = "0.3; 100 is nearly even, 0.1 leaves a worker with a few classes"
        raise BadInput(f"{concentration:g} is no concentration", where="--skew", fix=fix)
    shares = np.random.default_rng([seed, workers, 5]).dirichlet([concentration] * workers, classes) + 1e-12
    return Skew((shares / shares.sum(0)).T, tuple(map(float, shares.sum(0) / shares.sum())))


def workers_of(plan: Plan) -> int:
    """Ranks that have samples of their own; a plan in which some share theirs is refused."""
    workers = batch_ranks(plan)
    if workers < 2 or workers != plan.ranks:
        what = f"{plan}: {workers} of {plan.ranks} ranks have samples of their own"
        raise BadInput(what, where="--skew", fix="--plan local4:tau10, or --method fedavg:tau=8 --ranks 4")
    return workers


def own_rows(labels: Rows, found: Skew, batch: int, seed: int) -> Callable[[int, int], Rows]:
    """Samples of a worker's gradient, by its number and that of the gradient."""
    of_class: list[Rows] = [np.flatnonzero(labels == label) for label in np.unique(labels)]

    def rows(worker: int, gradient: int) -> Rows:
        draws = np.random.default_rng([seed, worker, gradient, 6])
        classes: list[int] = found.classes(worker, batch, draws).tolist()
        return np.array([int(draws.choice(of_class[label])) for label in classes])

    return rows
