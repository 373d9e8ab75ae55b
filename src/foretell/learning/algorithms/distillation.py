"""Distillation: an ensemble, and then one student that learns its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from foretell.learning.algorithms.ensemble import Ensemble
from foretell.learning.option import option
from foretell.learning.vector import Vector

if TYPE_CHECKING:
    from foretell.learning.world import Worker, World


@dataclass
class Distillation(Ensemble):
    """Worker 0 is the student, when every worker has made `teach` gradients."""

    paper: ClassVar[str] = "Hinton, Vinyals, Dean 2015, arXiv 1503.02531"
    summary: ClassVar[str] = "an ensemble, then one student of its answers"
    invariant: ClassVar[str] = "teachers do not move while the student learns; one model comes out"
    apart: ClassVar[bool] = False
    elastic: ClassVar[bool] = False

    teach: int = option(100, 1)

    def begin(self, world: World) -> None:
        super().begin(world)
        self.finished: set[int] = set()
        self.student: Worker | None = None

    def stepped(self, world: World, worker: Worker) -> None:
        if worker is self.student or worker.clock < self.teach:
            world.compute(worker)
            return
        self.finished.add(worker.number)
        if worker.number:
            world.send(worker, 0, worker.weights)
        self.begin_student(world, len(self.finished))

    def on_message(self, world: World, worker: Worker, sender: int, said: Vector) -> None:
        pass

    def begin_student(self, world: World, finished: int) -> None:
        if finished < world.count:
            return
        first = world.workers[0]
        teachers = [worker.weights for worker in world.workers]
        first.problem = world.problem.distilled(teachers)
        first.weights, first.velocity = world.problem.start(len(teachers)), None
        self.student = first
        world.compute(first)

    def models(self, world: World) -> Sequence[Vector]:
        return [self.student.weights] if self.student is not None else super().models(world)
