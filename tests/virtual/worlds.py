"""Small worlds for tests: double precision, gradients one by one, a pace in round numbers."""

from __future__ import annotations

from typing import Any

from foretell.learning.members import composed
from foretell.virtual.pace import Pace, even
from foretell.virtual.problem import TrainingProblem
from foretell.virtual.problems.squares import Squares
from foretell.virtual.run_state import RunLimits
from foretell.virtual.world import VirtualWorld

SQUARES = Squares()


def world(
    text: str, workers: int = 4, pace: Pace | None = None, problem: TrainingProblem = SQUARES, **more: Any
) -> VirtualWorld:
    """A world that has not begun; `gradients` limits it."""
    what = composed(text)
    limits = RunLimits(
        more.pop("gradients", 400), more.pop("seconds", float("inf")), more.pop("loss", -1.0), more.pop("events", 1e9)
    )
    more = {"rate": 0.2, "batched": False} | more
    return VirtualWorld(
        problem, what.algorithm, what.topology, what.compressor, pace or even(1.0, 0.05), workers, limits=limits, **more
    )


def played(text: str, workers: int = 4, **more: Any) -> VirtualWorld:
    made = world(text, workers, **more)
    made.run()
    return made
