"""A run of real processes again, in virtual time: the same algorithm and samples, in the order in which they came.

What cannot be foretold of an asynchronous run is whose message comes next. Every side writes that down; played in the
same orders, the run has the same losses and the same staleness, and whatever differs would be a fault of one side.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import msgspec
import numpy as np

from foretell.errors import BadInput
from foretell.learning.members import Composed
from foretell.learning.order import GRADIENT, asked, left, pushed, replied, sent
from foretell.learning.staleness import summary
from foretell.learning.topology import ShareMessage
from foretell.learning.vector import Rows
from foretell.learning.world import Worker
from foretell.runtime.assignment import Assignment, Report
from foretell.runtime.methods.choice import method
from foretell.virtual.foretold import StalenessComparison, seen, told
from foretell.virtual.pace import even
from foretell.virtual.world import VirtualWorld

ANY = ("sync", "local", "fedavg", "post_local", "diloco", "admm", "dpsgd", "averaging", "ensemble")
"""Algorithms whose answer does not depend on who comes first."""

ORDERED = "one server, or letters between workers, of a run of this version"
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
    foretold: StalenessComparison | None = None  # staleness without the order, where there is any


class InOrder(VirtualWorld):
    """A world without a clock: each side takes up what came to it in the order that was written down.

    Messages lie in boxes until then, one for each sender and kind. A side whose order nobody wrote down takes whatever
    there is. The server's number is that after all workers'.
    """

    def __init__(self, *given: Any, gradients: int, orders: Mapping[int, Sequence[int]], **more: Any) -> None:
        super().__init__(*given, **more)
        self._gradients, self._orders = gradients, orders  # of each worker; by side
        self._boxes: defaultdict[int, dict[int, deque[Callable[[], None]]]] = defaultdict(dict)
        self._taken: Counter[int] = Counter()
        self._side = self.count  # whose turn it is

    @property
    def present(self) -> int:
        return len(self.members())  # who has made its last gradient leaves

    def run(self, looked: Callable[[], None] = lambda: None) -> None:
        """Until nobody finds anything to take up; nobody looks at the loss meanwhile."""
        self.algorithm.begin(self)
        for worker in self.workers:
            self._side = worker.number
            self.algorithm.start(self, worker)
        while sum(self._turn(side) for side in range(self.count + 1)):
            pass

    def _turn(self, side: int) -> int:
        """A side takes up what it can; how much that was."""
        before = self._taken[side]
        for act in self._for(side):
            self._side = side
            self._taken[side] += 1
            act()
            self.engine.run()  # collectives, which take no time here
        return self._taken[side] - before

    def _for(self, side: int) -> Iterator[Callable[[], None]]:
        boxes, order = self._boxes[side], self._orders.get(side)
        while True:
            if order is None:
                found = next((box for _, box in sorted(boxes.items()) if box), None)
            else:
                found = boxes.get(order[self._taken[side]]) if self._taken[side] < len(order) else None
            if not found:
                return
            yield found.popleft()

    def _put(self, side: int, what: int, act: Callable[..., None], *given: Any) -> None:
        self._boxes[side].setdefault(what, deque()).append(partial(act, *given))

    # what algorithms do, and who has it then

    def compute(self, worker: Worker) -> None:
        if worker.clock < self._gradients:
            worker.ticket = self.pool.ask(worker.problem, worker.weights, self._rows(worker))
            self._put(worker.number, GRADIENT, self._computed, worker, worker.ticket)
        elif self.topology.central and not self.topology.collective:
            self._put(self.count, left(worker.number, self.count), self._gone, worker)

    def _gone(self, worker: Worker) -> None:
        worker.present = False
        if self.members():
            self.algorithm.on_leave(self, worker)

    def reply(self, workers: Sequence[Worker], clock: int = 0) -> None:
        if self._side == self.count or self.topology.collective:
            super().reply(workers, clock)
            return
        for worker in workers:  # who is no server asks it
            self._put(self.count, asked(worker.number, self.count), super().reply, [worker])

    def serve(self, pushes: int, act: Callable[[], None]) -> None:
        act()

    def send(self, worker: Worker, target: int, said: Any) -> None:
        self.bytes["peers"] += self.pace.size
        self._put(target, sent(worker.number), self._said, self.workers[target], worker.number, said)

    def tell(self, worker: Worker, target: int, said: Any) -> None:
        self._put(target, sent(worker.number), self._said, self.workers[target], worker.number, said)

    def _travel(
        self,
        legs: Sequence[Sequence[ShareMessage]],
        at: int,
        size: float,
        kind: str,
        act: Callable[..., None],
        *given: Any,
    ) -> None:
        self.bytes[kind] += size
        if kind == "up":
            self._put(self.count, pushed(given[-1].worker.number), act, *given)
        else:
            self._put(given[0].number, replied(self.count), act, *given)


def played(
    assignment: Assignment, found: Composed, workers: int, orders: Mapping[int, Sequence[int]] | None = None
) -> tuple[VirtualWorld, list[float]]:
    """A run of as many gradients of each worker as was asked for, with the losses of its steps."""
    from foretell.runtime.training import rule_of
    from foretell.virtual.problems.run import GradientRun

    problem, steps = GradientRun(assignment), assignment.dropped + assignment.steps
    arguments = rule_of(assignment, assignment.setting).arguments
    world = InOrder(
        problem,
        found.algorithm,
        found.topology,
        found.compressor,
        even(1.0, 0.0),
        workers,
        gradients=steps,
        orders=orders or {},
        rate=arguments["lr"],
        momentum=arguments.get("momentum", 0.0),
        seed=assignment.seed,
        batched=False,
        rows=_rows,
        look_every=steps * workers + 1,
    )
    world.amounts = problem.amounts
    world.run()
    missing = [(worker, at) for at in range(steps) for worker in range(workers) if (worker, at) not in problem.losses]
    if missing:
        worker, at = missing[0]
        what = f"the orders do not fit: worker {worker} of {workers} stops before its gradient {at + 1} of {steps}"
        raise BadInput(what, where="--record", fix=ORDERED)
    return world, [fmean(problem.losses[worker, at] for worker in range(workers)) for at in range(steps)]


def _rows(worker: int, gradient: int) -> Rows:
    """Of `GradientRun`: whose gradient, and which of its own."""
    return np.array([worker, gradient])


def again(assignment: Assignment, reports: Sequence[Report], measured_staleness: dict[str, float]) -> Again:
    """Play what ranks did."""
    found, workers = _checked(assignment, reports), len(reports)
    world, losses = played(assignment, found, workers, orders_of(assignment, reports))
    measured = [sum(ranks) / workers for ranks in zip(*(report.losses for report in reports), strict=True)]
    return Again(
        algorithm=found.text,
        workers=workers,
        steps=len(losses),
        losses=tuple(losses),
        measured=tuple(measured),
        apart=float(np.max(np.abs(np.subtract(losses, measured)))),
        staleness=summary(world.staleness) if measured_staleness else {},
        measured_staleness=measured_staleness,
        foretold=told(seen(assignment, reports)) if measured_staleness and reports[0].paces else None,
    )


def orders_of(assignment: Assignment, reports: Sequence[Report]) -> dict[int, list[int]]:
    """Of every side that wrote it down. Pushes alone, as runs once wrote them, count if they are those of gradients."""
    found = {report.rank: report.heard for report in reports if report.heard}
    arrivals = reports[0].arrivals
    return found | ({len(reports): arrivals} if found or _has_all(arrivals, assignment, len(reports)) else {})


def _checked(assignment: Assignment, reports: Sequence[Report]) -> Composed:
    if assignment.device == "cuda":
        what = "a run on GPUs, whose sums a processor does not repeat to the last digit"
        raise BadInput(what, where="--record", fix="a record of `foretell run --device cpu`")
    found = method(assignment.setting.plan, assignment.method)
    if found is None:
        what = f"{assignment.plan}: all ranks stepped together, and there is one way to play that"
        raise BadInput(what, where="--record", fix="a record of `foretell run` with ps, local, ring or --method")
    known = type(found.algorithm).__module__.rpartition(".")[2]
    if known == "distillation":
        what = f"{found.text}: teachers end before their student, and steps are compared one by one"
        raise BadInput(what, where="--record", fix=ORDERED)
    servers = sum(bool(report.arrivals) for report in reports)
    if known in ANY:
        return found
    if servers > 1:
        why = f"{servers} servers, each with an order of its own"
        raise BadInput(f"{found.text}: {why}", where="--record", fix=ORDERED)
    if not any(report.heard for report in reports) and not _has_all(reports[0].arrivals, assignment, len(reports)):
        why = "the server wrote down whose pushes came, and not every gradient was pushed"
        raise BadInput(f"{found.text}: {why}", where="--record", fix=ORDERED)
    return found


def _has_all(arrivals: Sequence[int], assignment: Assignment, workers: int) -> bool:
    """Whether the order of pushes is that of gradients: each was pushed by itself."""
    counts, steps = Counter(arrivals), assignment.dropped + assignment.steps
    return all(counts[worker] == steps for worker in range(workers))
