"""What is learnt: gradients at any weights over any samples, and a judgement of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foretell.learning.vector import Rows, Shapes, Vector
from foretell.learning.world import Judged


class TrainingProblem(Protocol):
    """Several gradients are asked for at once, so that many workers make one large product instead of many small."""

    name: str
    metric: str  # what the second figure of a judgement is
    shapes: Shapes
    samples: int  # to draw from
    labels: Rows  # the class of each, by which data can be shared out

    def start(self, seed: int) -> Vector:
        """The weights that everybody begins with."""
        ...

    def gradients(self, weights: Sequence[Vector], rows: Sequence[Rows]) -> Sequence[Vector]:
        """The mean gradient over each worker's rows at its weights."""
        ...

    def judged(self, models: Sequence[Vector]) -> Judged:
        """What the models come to together: their answers are averaged (one model: its own)."""
        ...

    def distilled(self, models: Sequence[Vector]) -> TrainingProblem:
        """The same samples with the models' answers as targets (Hinton et al. 2015, arXiv 1503.02531)."""
        ...


class Ticket:
    """A gradient that was asked for; made when it is needed, beside all others that are asked for by then."""

    __slots__ = ("gradient", "problem", "rows", "weights")

    def __init__(self, problem: TrainingProblem, weights: Vector, rows: Rows) -> None:
        self.problem: TrainingProblem = problem
        self.weights: Vector | None = weights
        self.rows: Rows = rows
        self.gradient: Vector | None = None


class GradientPool:
    """Gradients of many workers in few calls.

    A worker's gradient depends on its weights and rows alone, both known when it begins to compute. So nothing is
    computed until the clock reaches the end of the first, and then all that have begun are computed together.
    """

    def __init__(self, batched: bool = True, most: int = 256) -> None:
        self._batched = batched
        self._most = most  # at once: more do not stay in the caches
        self._pending: list[Ticket] = []

    def ask(self, problem: TrainingProblem, weights: Vector, rows: Rows) -> Ticket:
        ticket = Ticket(problem, weights, rows)
        if self._batched:
            self._pending.append(ticket)
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """Nobody will take it."""
        if ticket.gradient is None and self._batched:
            self._pending.remove(ticket)

    def take(self, ticket: Ticket) -> Vector:
        if ticket.gradient is None:
            self._make([ticket] if not self._batched else self._pending)
        made = ticket.gradient
        assert made is not None
        ticket.gradient = None
        return made

    def _make(self, asked: list[Ticket]) -> None:
        for begin in range(0, len(asked), self._most):
            self._together(asked[begin : begin + self._most])
        self._pending = []

    @staticmethod
    def _together(tickets: list[Ticket]) -> None:
        by_problem: dict[int, list[Ticket]] = {}
        for ticket in tickets:
            by_problem.setdefault(id(ticket.problem), []).append(ticket)
        for same in by_problem.values():
            weights = [ticket.weights for ticket in same if ticket.weights is not None]
            made = same[0].problem.gradients(weights, [ticket.rows for ticket in same])
            for ticket, gradient in zip(same, made, strict=True):
                ticket.gradient, ticket.weights = gradient, None  # a version lives as long as somebody needs it
