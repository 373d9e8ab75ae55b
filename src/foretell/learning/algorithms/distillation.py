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
    """Every worker makes `teach` gradients and sends its model to worker 0, which then begins anew as the student."""

    paper: ClassVar[str] = "Hinton, Vinyals, Dean 2015, arXiv 1503.02531"
    summary: ClassVar[str] = "an ensemble, then one student of its answers"
    invariant: ClassVar[str] = "teachers do not move while the student learns; one model comes out"
    elastic: ClassVar[bool] = False
    handed: ClassVar[str] = "first"

    teach: int = option(100, 1)

    @property
    def least(self) -> int:
        """With fewer gradients no student begins."""
        return self.teach + 1

    def begin(self, world: World) -> None:
        super().begin(world)
        self.teachers: dict[int, Vector] = {}  # worker 0 has them
        self.student: Worker | None = None

    def stepped(self, world: World, worker: Worker) -> None:
        if worker is self.student or worker.clock < self.teach:
            world.compute(worker)
        elif worker.number:
            world.send(worker, 0, worker.weights)
            world.retire(worker)
        else:
            self.taught(world, worker, 0, worker.weights)

    def on_message(self, world: World, worker: Worker, sender: int, said: Vector) -> None:
        self.taught(world, worker, sender, said)

    def taught(self, world: World, first: Worker, teacher: int, weights: Vector) -> None:
        """The student begins when all teachers' models are there."""
        self.teachers[teacher] = weights
        if len(self.teachers) < world.count:
            return
        first.problem = world.problem.distilled([self.teachers[number] for number in sorted(self.teachers)])
        first.weights, first.velocity = world.problem.start(world.count), None
        self.student = first
        world.compute(first)

    def models(self, world: World) -> Sequence[Vector]:
        return [self.student.weights] if self.student is not None else super().models(world)
