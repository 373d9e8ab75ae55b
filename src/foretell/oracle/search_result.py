"""What a search found: the plans in front, what was refused or excluded, and what is proven of the rest."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.summary import Summarized, plans
from foretell.units import show_bytes

INTERRUPTED, OUT_OF_TIME = "interrupted", "out of time"
"""Why a search ended before its end."""


class Refinement(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for the leading plans beside what the search varies; see `oracle.refinement`."""

    what: str  # is chosen: stages, parts
    tried: int  # plans for which it was
    before: Candidate | None  # the best plan of the search itself; None: nothing fits
    plan: str = ""  # the best with what is chosen; empty: that is no better
    step_seconds: float = 0.0
    memory_bytes: float = 0.0
    least_seconds: float = 0.0  # no other choice for this plan takes less

    @property
    def gain(self) -> float:
        """The part of the best step before that is saved; all of it where nothing was there before."""
        return 1 - self.step_seconds / self.before.step_seconds if self.before else 1.0

    @property
    def gap(self) -> float:
        """The part of the step that another choice could save at most."""
        return max(0.0, 1 - self.least_seconds / self.step_seconds) if self.plan else 0.0


class MixedWay(msgspec.Struct, frozen=True, kw_only=True):
    """A way to use the kinds of devices of a mixed cluster, with its best plan."""

    way: str  # uneven batches, stages by kind, equal shares, or one kind alone
    cluster: str
    plan: str
    step_seconds: float
    memory_bytes: float
    fits: bool
    roomy: bool  # with as much room as plans that are recommended have
    what: str  # who has which share
    alone: bool = False  # whether other kinds have nothing to do

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.plan, self.step_seconds, self.memory_bytes)


class SearchResult(Summarized, frozen=True, kw_only=True, dict=True):
    """What a search found. All its plans, not kept in files, are its `plans`."""

    model: str
    cluster: str
    trainer: str
    batch: int
    ranks: int
    capacity: float  # bytes of a device that a run can fill
    candidates: int  # plans looked at, refused ones included
    evaluated: int  # fully priced: time and memory
    refused: dict[str, int]  # by rule; a mesh or an axis that is refused counts once for all its plans
    fitting: int  # of those evaluated
    local_programs: int
    seconds: float
    plans_per_second: float
    best: Candidate | None  # the recommended plan; before anything is recommended, the fastest; None: nothing fits
    top: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]  # plans that no other is both faster and smaller than; of those that fit, if some do
    nearest: Candidate | None  # the one that needs the least memory; None: all are refused
    complete: bool = True  # False: stopped, and this is of the plans until then
    seen: float = 1.0  # share of the meshes that were looked at, one after the other; 1 unless stopped
    stopped: str = ""  # why it is not complete: interrupted, out of time
    meshes: int = 0  # of the space, refused ones included
    excluded: int = 0  # plans that were not priced because their lower bound is too slow or too large
    least_seconds: float = 0.0  # proven: no plan of the space that fits takes less; 0: nothing is
    ways: tuple[MixedWay, ...] = ()  # on a mixed cluster: the fastest of each way to use its kinds
    finer: tuple[Refinement, ...] = ()  # what was chosen beside what the search varies
    fastest: Candidate | None = None  # the optimum of the space, however full a device is
    smaller: Candidate | None = None  # of those priced, the fastest that needs a quarter less than the recommended one

    @property
    def interrupted(self) -> bool:
        """Whether somebody stopped it, and waits for no further search."""
        return self.stopped == INTERRUPTED

    @property
    def gap(self) -> float:
        """The part of the fastest plan's step that another plan of the space could save at most."""
        fastest = self.fastest or self.best
        return max(0.0, 1 - self.least_seconds / fastest.step_seconds) if fastest and self.least_seconds else 0.0

    @property
    def plans(self) -> PricedPlans:
        """Every plan that was priced."""
        return vars(self)["_plans"]

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model}, batch {self.batch:,}, on {self.cluster}"
        yield "plans", f"{self.evaluated:,} priced, {self.fitting:,} fit in {show_bytes(self.capacity)}"
        yield from plans((one.plan, one.step_seconds, one.memory_bytes) for one in self.top)
