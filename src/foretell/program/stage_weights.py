"""The weights of a stage: the bytes that are there for the whole step, and what is done for them in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.model.layers import EqualLayers
from foretell.program.action import Action, Communicate
from foretell.program.updates import Updated
from foretell.program.weights import Weight


@dataclass(frozen=True)
class PersistentBytes:
    """Bytes that are there for the whole step, and how many parameters they are for."""

    weights: float
    gradients: float
    states: float
    parameters: int
    trained: int
    updates: tuple[Updated, ...]

    @property
    def updated(self) -> int:
        """Parameters whose states are here."""
        return sum(one.elements for one in self.updates)


@dataclass(frozen=True)
class StageWeights:
    """The care of one stage's weights."""

    units: dict[str, list[Weight]]  # weights that are gathered for each use, by their layer
    sizes: dict[str, float]  # bytes that each layer's weights take while it runs, gathered or from the host
    root: list[Weight]  # those of no layer, gathered at the start of a pass
    twice: list[Weight]  # and of the backward pass once more
    host: dict[str, list[Weight]]  # weights that come from the host for each use, by their layer
    stays: list[Weight]  # those of no layer, which come for both passes
    root_bytes: float
    reduces: tuple[Action, ...]  # after each micro-batch's backward pass
    sums: tuple[Communicate, ...]  # once a step: of gradients, and gathers of weights where these are used whole
    ending: tuple[Action, ...]  # and what waits for them: sums among stages, and the update

    @property
    def finish(self) -> tuple[Action, ...]:
        """All that is done once a step."""
        return (*self.sums, *self.ending)

    def gathered_for(self, runs: Sequence[EqualLayers]) -> tuple[float, ...]:
        """Bytes that each run of layers gathers; empty where none does."""
        if not self.sizes:
            return ()
        seen: set[str] = set()
        found: list[float] = []
        for run in runs:
            found.append(self.sizes.get(run.layer, 0.0) if run.layer not in seen else 0.0)
            seen.add(run.layer)
        return tuple(found)
