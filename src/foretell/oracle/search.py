"""The best plan there is: every plan of a space priced, time and memory, and the best of them told.

Parts that plans have in common are priced once: local programs, cuttings, the care of weights, orders of slots. A plan
is then a row of places in tables, and the loop that predicts one plan goes over all rows (`timeline.step`).
So what is found for a plan is what `predict` says of it, to the last digit.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import msgspec
import numpy

from foretell.compiling import available
from foretell.cost.memory import usable_bytes
from foretell.oracle.mesh_rows import Columns, MeshPlans, MeshRows
from foretell.oracle.parts import Parts, PolicySet
from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.oracle.space import Space, Way
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.lora import Lora
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy
from foretell.summary import Summarized, plans
from foretell.timeline.columns import PLAN_COLUMNS, REAL, plan_arrays, plan_rows
from foretell.timeline.engine import is_compiled, kernels
from foretell.units import show_bytes

TOP = 10
"""Plans that are told as the best ones, where nobody says how many."""

CHUNK = 200_000
"""Plans that are priced at a time: enough that the start does not count, few enough that they fit a cache."""

FEW = 3_000
"""Plans for which compiling, half a minute on a machine that never did it, does not pay."""


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
    best: Candidate | None  # None: nothing fits
    top: tuple[Candidate, ...]
    pareto: tuple[Candidate, ...]  # plans that no other is both faster and smaller than; of those that fit, if some do
    nearest: Candidate | None  # the one that needs the least memory; None: all are refused
    complete: bool = True  # False: interrupted, and this is of the plans until then
    seen: float = 1.0  # share of the meshes that were looked at, one after the other; 1 unless interrupted
    finer: tuple[Refinement, ...] = ()  # what was chosen beside what the search varies

    @property
    def plans(self) -> PricedPlans:
        """Every plan that was priced."""
        return vars(self)["_plans"]

    def summary(self) -> Iterator[tuple[str, str]]:
        yield "model", f"{self.model}, batch {self.batch:,}, on {self.cluster}"
        yield "plans", f"{self.evaluated:,} priced, {self.fitting:,} fit in {show_bytes(self.capacity)}"
        yield from plans((one.plan, one.step_seconds, one.memory_bytes) for one in self.top)


Watch: TypeAlias = Callable[[int], None]
"""Told after each mesh how many plans there are so far; `Space.looked` says how far it is."""


def search(space: Space, most: float = 0.0, watch: Watch | None = None, top: int = TOP) -> SearchResult:
    """Price every plan of a space. `most`: bytes that a device may use, if less than it has.

    Ctrl-C ends it with what was found until then.
    """
    return _Search(space, most, watch or (lambda plans: None), top).run()


SLICE = 16384
"""Plans that are priced between two looks at whether somebody has interrupted."""

NAMES = ("mesh", "which", "place", "microbatches")
"""Where in the space a plan is."""

PLAYED = ("order", "partition", "shorter_order")
"""Plans that have these in common lie next to each other: they are played together."""

TAKES = ("launch_profile", "sends", "program", "traffic")
"""And of those the ones next to each other that have these in common too, as many as possible: they take as long."""

HOLDS = ("moments", "partition", "peaks", "rounds")
"""Plans that have these in common hold the same."""


class _Search:
    def __init__(self, space: Space, most: float, watch: Watch, top: int) -> None:
        self.space, self.watch, self.top = space, watch, top
        self.graph, self.cluster, self.trainer = space.graph, space.cluster, space.trainer
        self.capacity = min(most or float("inf"), usable_bytes(space.trainer, space.cluster))
        self.meshes: list[tuple[Strategy, ...]] = []
        self.parts = Parts(space)
        self.chosen = [self.parts.chosen(policies) for policies in space.policies]
        self.alike = _by_model(self.chosen)
        self.blocks: list[MeshPlans] = []
        self.waiting = 0  # plans in these
        self.begun: tuple[Columns, Any] | None = None  # plans that are being priced, and the order of those still to be
        self.priced: list[tuple[Any, Any, Any]] = []  # names, seconds, bytes
        self.used: set[int] = set()  # local programs
        self.done = 0

    def run(self) -> SearchResult:
        with _nothing_collected():
            return self._run()

    def _run(self) -> SearchResult:
        start = time.perf_counter()
        complete = True
        try:
            for axes in self.space.meshes():
                self._add(axes)
                self.watch(self.done + self.waiting)
                if self.waiting >= CHUNK:
                    self._evaluate()
            self._evaluate()
        except KeyboardInterrupt:
            complete = False
            with suppress(KeyboardInterrupt):  # who asks again does not even want these
                self._evaluate()
        return self._found(time.perf_counter() - start, complete)

    def _add(self, axes: tuple[Strategy, ...]) -> None:
        """The plans of a mesh, all or none."""
        found = [block for own in self.alike for block in MeshRows(self.parts, axes, own).blocks(len(self.meshes))]
        self.meshes.append(axes)
        self.blocks += found
        self.waiting += sum(block.size for block in found)

    # pricing

    def _evaluate(self) -> None:
        """Price what was added, slice by slice: what is priced stays, whenever somebody interrupts."""
        if self.begun is None:
            if not self.blocks:
                return
            self.begun, self.blocks = _in_order(self.blocks), []
        columns, order = self.begun
        self.used.update(numpy.unique(columns["program"][order]).tolist())
        fast = available() and (len(order) > FEW or is_compiled())
        engine, tables = kernels(fast), self.parts.table.tables(fast)
        rows = {name: columns[name] for name in PLAN_COLUMNS}
        plans = plan_arrays(rows, order) if fast else plan_rows({name: own[order] for name, own in rows.items()}, False)
        names = numpy.stack([columns[name][order] for name in NAMES], axis=1).astype(numpy.int32)
        held, seconds, memory = _packed(columns, HOLDS)[order], numpy.zeros(len(order)), numpy.zeros(len(order))
        for first in range(0, len(order), SLICE):
            self.begun, self.waiting = (columns, order[first:]), len(order) - first
            own = slice(first, min(first + SLICE, len(order)))
            engine.evaluate(tables, plans, own.start, own.stop, seconds)
            engine.evaluate_memory(tables, plans, first + numpy.argsort(held[own], kind="stable"), memory)
            self.priced.append((names[own], seconds[own], memory[own]))
            self.done += own.stop - own.start
        self.begun, self.waiting = None, 0

    # results

    def _found(self, taken: float, complete: bool) -> SearchResult:
        space = self.space
        empty = (numpy.zeros((0, len(NAMES)), numpy.int32), numpy.zeros(0), numpy.zeros(0))
        names, seconds, memory = (numpy.concatenate(parts) for parts in zip(*(self.priced or [empty]), strict=True))
        plans = PricedPlans(seconds, memory, self.capacity, lambda at: self._named(names[at]))
        top = plans.fastest(self.top)
        found = SearchResult(
            model=self.graph.name,
            cluster=self.cluster.text,
            trainer=self.trainer.name,
            batch=space.job.batch,
            ranks=self.cluster.ranks,
            capacity=self.capacity,
            candidates=len(plans) + sum(space.refused.values()),
            evaluated=len(plans),
            refused=dict(sorted(space.refused.items(), key=lambda rule: (-rule[1], rule[0]))),
            fitting=int(plans.fits.sum()),
            local_programs=len(self.used),
            seconds=taken,
            plans_per_second=len(plans) / taken,
            best=top[0] if top else None,
            top=top,
            pareto=plans.front(),
            nearest=next(iter(plans.smallest(1)), None),
            complete=complete,
            seen=1.0 if complete else self._seen(),
        )
        vars(found)["_plans"] = plans
        return found

    def _seen(self) -> float:
        """The share of the meshes whose plans are priced; those that still wait are not."""
        priced = self.done / max(1, self.done + self.waiting)
        return min(1.0, self.space.looked / max(1, self.space.mesh_count)) * priced

    def _named(self, name: Any) -> Plan:
        number, which, place, count = (int(value) for value in name)
        axes = self.meshes[number]
        ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        way = Way(self.space.pipelines(ranks)[place], count, self.chosen[which].policies)
        return self.space.plan(axes, way)


@contextmanager
def _nothing_collected() -> Generator[None]:
    """What a search finds stays until its end: looking again and again for what of it is in use takes a tenth of it."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _in_order(blocks: Sequence[MeshPlans]) -> tuple[Columns, Any]:
    """Plans of several blocks, one after the other, and the order in which they are played."""
    columns = {name: _one_column(name, blocks) for name in blocks[0].columns}
    return columns, numpy.lexsort([_packed(columns, TAKES), _packed(columns, PLAYED)])


def _one_column(name: str, blocks: Sequence[MeshPlans]) -> Any:
    """A column of all blocks."""
    found = numpy.empty(sum(block.size for block in blocks), float if name in REAL else numpy.int64)
    first = 0
    for block in blocks:
        found[first : first + block.size].reshape(block.shape)[:] = block.columns[name]
        first += block.size
    return found


def _packed(columns: Columns, names: Sequence[str]) -> Any:
    """One whole number for several columns of them, larger where the first ones are."""
    found = numpy.zeros(len(columns[names[0]]), dtype=numpy.int64)
    for name in names:
        found = found * (int(columns[name].max()) + 2) + columns[name] + 1  # none is less than -1
    return found


def _by_model(chosen: Sequence[PolicySet]) -> list[dict[int, PolicySet]]:
    """Sets of policies, those together that leave the model, and what its samples share, the same."""
    found: dict[Hashable, dict[int, PolicySet]] = defaultdict(dict)
    for which, one in enumerate(chosen):
        found[one.plan.policy(Lora), one.plan.policy(BatchNorm)][which] = one
    return list(found.values())
