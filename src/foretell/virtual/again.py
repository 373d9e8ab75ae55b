"""A run of real processes again, in virtual time: the same algorithm and samples, in the order in which they came.

What cannot be foretold of an asynchronous run is whose gradient comes next. A server writes that down; played in the
same order, the run has the same losses and the same staleness, and whatever differs would be a fault of one side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec
import numpy as np

from foretell.errors import BadInput
from foretell.learning.members import Composed
from foretell.learning.staleness import summary
from foretell.learning.world import Worker
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.methods.choice import method
from foretell.virtual.pace import even
from foretell.virtual.world import World

ANY = ("sync", "local", "post_local", "admm", "dpsgd", "averaging")
"""Algorithms whose answer does not depend on who comes first."""

ORDERED = "sync, ssp, async with one server; local, ring"
"""What can be played again."""


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of a run. `apart` is how far their losses lie from each other at most."""

    algorithm: str
    workers: int
    steps: int
    losses: tuple[float, ...]  # of each step, the mean over workers
    measured: tuple[float, ...]
    apart: float
    staleness: dict[str, float]
    measured_staleness: dict[str, float]


class InOrder(World):
    """A world in which the gradients of workers end when they came; where nobody wrote that down, all at once."""

    gradients: int = 0  # of each worker
    moments: Mapping[int, Sequence[float]] = {}

    def compute(self, worker: Worker) -> None:
        if worker.clock < self.gradients:
            worker.ticket = self.pool.ask(worker.problem, worker.weights, self._rows(worker))
            came = self.moments.get(worker.number)
            self.engine.at(came[worker.clock] if came else self.now + 1.0, self._computed, worker, worker.ticket)


def _moments(arrivals: Sequence[int]) -> dict[int, list[float]]:
    """A second from one to the next."""
    found: dict[int, list[float]] = defaultdict(list)
    for moment, worker in enumerate(arrivals, 1):
        found[worker].append(float(moment))
    return found


def played(
    assignment: Assignment, found: Composed, workers: int, arrivals: Sequence[int] = ()
) -> tuple[World, list[float]]:
    """A run of as many gradients of each worker as was asked for, with the losses of its steps."""
    from foretell.runtime.training import rule_of
    from foretell.virtual.problems.run import Run

    problem, steps = Run(assignment), assignment.dropped + assignment.steps
    arguments = rule_of(assignment, assignment.setting()).arguments
    world = InOrder(
        problem,
        found.algorithm,
        found.topology,
        found.compressor,
        even(1.0, 0.0),
        workers,
        rate=arguments["lr"],
        momentum=arguments.get("momentum", 0.0),
        seed=assignment.seed,
        batched=False,
        rows=lambda worker, gradient: np.array([worker, gradient]),
        look_every=steps * workers + 1,
    )
    world.gradients, world.moments = steps, _moments(arrivals)
    world.run()
    return world, [fmean(problem.losses[worker, at] for worker in range(workers)) for at in range(steps)]


def again(assignment: Assignment, reports: Sequence[Report], measured_staleness: dict[str, float]) -> Again:
    """Play what ranks did."""
    found, workers = _checked(assignment, reports), len(reports)
    arrivals = reports[0].arrivals if _has_all(reports[0].arrivals, assignment, workers) else ()
    world, losses = played(assignment, found, workers, arrivals)
    seen = [sum(ranks) / workers for ranks in zip(*(report.losses for report in reports), strict=True)]
    return Again(
        algorithm=found.text,
        workers=workers,
        steps=len(losses),
        losses=tuple(losses),
        measured=tuple(seen),
        apart=float(np.max(np.abs(np.subtract(losses, seen)))),
        staleness=summary(world.staleness) if measured_staleness else {},
        measured_staleness=measured_staleness,
    )


def _checked(assignment: Assignment, reports: Sequence[Report]) -> Composed:
    found = method(assignment.setting().plan, assignment.method)
    if found is None:
        what = f"{assignment.plan}: all ranks stepped together, and there is one way to play that"
        raise BadInput(what, where="--record", fix="a record of `foretell run` with ps, local, ring or --method")
    known = type(found.algorithm).__module__.rpartition(".")[2]
    servers = sum(bool(report.arrivals) for report in reports)
    if known not in ANY and servers != 1:
        why = "letters between workers" if not servers else f"{servers} servers, each with an order of its own"
        raise BadInput(f"{found.text}: {why}", where="--record", fix=ORDERED)
    if known not in ANY and not _has_all(reports[0].arrivals, assignment, len(reports)):
        why = "the server wrote down whose pushes came, and not every gradient was pushed"
        raise BadInput(f"{found.text}: {why}", where="--record", fix=ORDERED)
    return found


def _has_all(arrivals: Sequence[int], assignment: Assignment, workers: int) -> bool:
    """Whether the order of pushes is that of gradients: each was pushed by itself."""
    counts, steps = Counter(arrivals), assignment.dropped + assignment.steps
    return all(counts[worker] == steps for worker in range(workers))
