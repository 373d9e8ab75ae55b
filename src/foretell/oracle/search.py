"""The best plan there is: the plans of a space priced, time and memory, and the best of them returned.

A small space is priced as a whole. In a large one meshes come in the order in which an engineer would try them, and
those whose lower bound (`oracle.lower_bounds`) is slower than what was found, or does not fit, are never priced: what
is left out cannot win. A search that runs out of time returns the best so far, and what is proven of the rest.

Parts that plans have in common are priced once: local programs, cuttings, the care of weights, orders of slots. A plan
is then a row of places in tables, and the loop that predicts one plan goes over all rows (`timeline.step`).
So what is found for a plan is what `predict` says of it, to the last digit.
"""

from __future__ import annotations

import functools
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import numpy

from foretell.compiling import available, was_compiled
from foretell.cost.memory import most_bytes, usable_bytes
from foretell.oracle.local_programs import PolicySet
from foretell.oracle.lower_bounds import roofline
from foretell.oracle.memory_band import doubts, spread
from foretell.oracle.mesh_bounds import MeshBounds, least
from foretell.oracle.mesh_order import Estimate
from foretell.oracle.mesh_rows import Columns, MeshPlans, MeshRows
from foretell.oracle.parts import Parts
from foretell.oracle.priced_plans import PricedPlans
from foretell.oracle.request import WHOLE, SearchEffort
from foretell.oracle.search_result import INTERRUPTED, OUT_OF_TIME, Refinement, SearchResult
from foretell.oracle.space import Space, Way
from foretell.plan.plan import Plan
from foretell.plan.policies.a2a_overlap import A2AOverlap
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.recompute import Recompute
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategy import Strategy
from foretell.plan.trained import as_trained_by, trained_weights
from foretell.timeline.columns import PLAN_COLUMNS, REAL, plan_arrays, plan_rows
from foretell.timeline.engine import is_compiled, kernels

__all__ = ["OUT_OF_TIME", "TOP", "Refinement", "SearchResult", "Watch", "search"]

TOP = 10
"""Plans that are told as the best ones, where nobody says how many."""

CHUNK = 200_000
"""Plans that are priced at a time: enough that the start does not count, few enough that they fit a cache."""

ROOM = 1.25
"""How much more memory than there is a plan may need for which other stages are tried: layers go from the fullest rank
to others."""

SMALL = 150
"""Meshes up to which a space is priced as a whole: it takes a second or two."""

FIRST, WAVE = 200, 1_000
"""The same where plans that cannot win are left out: the first time, and each time after that."""

MANY = 8
"""Meshes with plans that may win after which these are priced, however few they are: their parts took longer."""

FEW = 3_000
"""Plans for which compiling, half a minute on a machine that never did it, does not pay."""


class FoundSoFar(NamedTuple):
    """How a search stands; `Space.looked` says how far it is."""

    plans: int
    fastest: float  # seconds of the fastest that is sure to fit; infinite: there is none yet
    least: float  # seconds that no plan of the space takes less than
    compiling: bool = False  # once on a machine, before plans are priced


Watch: TypeAlias = Callable[[FoundSoFar], None]
"""Told after each mesh."""


def search(
    space: Space, most: float = 0.0, watch: Watch | None = None, top: int = TOP, effort: SearchEffort = WHOLE
) -> SearchResult:
    """Price the plans of a space. `most`: bytes that a device may use, if less than it has.

    Ctrl-C ends it with what was found until then.
    """
    return _Search(space, most, watch or (lambda now: None), top, effort).run()


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
    def __init__(self, space: Space, most: float, watch: Watch, top: int, effort: SearchEffort) -> None:
        self.space, self.watch, self.top, self.effort = space, watch, top, effort
        self.graph, self.cluster, self.trainer = space.graph, space.cluster, space.trainer
        usable = usable_bytes(space.trainer, space.cluster)
        self.capacity = min(most or float("inf"), usable)
        wide = spread(doubts(space.trainer, space.cluster.device))
        self.room = min(self.capacity, effort.room(usable, most_bytes(space.trainer, space.cluster), wide))
        self.meshes: list[tuple[Strategy, ...]] = []
        self.parts = Parts(space)
        self.bounds = MeshBounds(self.parts)
        self.chosen = [self.parts.chosen(policies) for policies in space.policies]
        self.alike = _by_model(self.chosen)
        self.blocks: list[MeshPlans] = []
        self.waiting = 0  # plans in these
        self.begun: tuple[Columns, Any] | None = None  # plans that are being priced, and the order of those still to be
        self.priced: list[tuple[Any, Any, Any]] = []  # names, seconds, bytes
        self.used: set[int] = set()  # local programs
        self.done = 0
        self.excluded = 0  # plans that cannot win
        self.roomy = float("inf")  # seconds of the fastest plan with head-room so far
        self.sampling = False  # of each family of meshes the likeliest, with few sets of policies
        self.sampled: dict[int, frozenset[int]] = {}  # those sets, by mesh
        self.compiling = 0.0  # seconds: kernels are compiled once on a machine, and the time box is for searching

    def run(self) -> SearchResult:
        with _nothing_collected():
            return self._run()

    def _run(self) -> SearchResult:
        start = time.perf_counter()
        stopped = ""
        try:
            for axes in self._meshes():
                self._add(axes, self.sampling)
                self.watch(self._so_far())
                if self._enough():
                    self._evaluate()
                if time.perf_counter() - start - self.compiling > self.effort.seconds:
                    stopped = OUT_OF_TIME
                    break
            self._evaluate()
        except KeyboardInterrupt:
            stopped = INTERRUPTED
            with suppress(KeyboardInterrupt):  # who asks again does not even want these
                self._evaluate()
        return self._found(time.perf_counter() - start, stopped)

    def _so_far(self, compiling: bool = False) -> FoundSoFar:
        return FoundSoFar(self.done + self.waiting, self.roomy, self._roof, compiling)

    @functools.cached_property
    def _prunes(self) -> bool:
        """Whether plans that cannot win are left out."""
        return not self.effort.exhaustive and self.space.mesh_count > SMALL

    def _meshes(self) -> Iterator[tuple[Strategy, ...]]:
        """All of them in the order of the space; or the likely ones first: the likeliest of each family (axes and their
        ranks, however weights are stored), then the others of the families in which the fastest plans were found."""
        if not self._prunes:
            return self.space.meshes()
        return self._likely_first()

    def _likely_first(self) -> Iterator[tuple[Strategy, ...]]:
        likely = sorted(
            self.space.every_mesh, key=Estimate(self.graph, self.cluster, self.capacity, self.space.job.batch)
        )
        families = {_family(axes): axes for axes in reversed(likely)}
        self.sampling = True
        yield from self.space.meshes(list(families.values())[::-1])
        self._evaluate()
        refused = {id(axes) for axes in families.values()} - self.sampled.keys()  # and counted already
        self.sampling, self.space.looked = False, len(refused)
        rest = [axes for axes in likely if id(axes) not in refused]
        yield from self.space.meshes(sorted(rest, key=self._of_families()))

    def _of_families(self) -> Callable[[tuple[Strategy, ...]], float]:
        """Seconds of the fastest plan that was found in a mesh's family, and fits."""
        best: dict[Hashable, float] = defaultdict(lambda: float("inf"))
        for names, seconds, memory in self.priced:
            fits = memory <= self.capacity
            for number, taken in zip(names[fits, 0], seconds[fits], strict=True):
                family = _family(self.meshes[int(number)])
                best[family] = min(best[family], float(taken))
        return lambda axes: best[_family(axes)]

    def _enough(self) -> bool:
        """Whether plans wait that are worth pricing: at first few, so that what cannot win is soon known."""
        if not self._prunes:
            return self.waiting >= CHUNK
        return self.waiting >= (WAVE if self.done else FIRST) or len(self.blocks) >= MANY

    def _add(self, axes: tuple[Strategy, ...], sample: bool = False) -> None:
        """The plans of a mesh that may win, all or none; of a sample those with few sets of policies."""
        found: list[MeshPlans] = []
        counted = self.space.refused.copy() if id(axes) in self.sampled else None
        plans, before = 0, self.sampled.pop(id(axes), frozenset())
        for own in self.alike:
            rows = MeshRows(self.parts, axes, own)
            wanted = [which for which in rows.allowed if which not in before and (not sample or self._usual(which))]
            found += rows.blocks(len(self.meshes), self._may_win(rows, wanted))
            plans += len(wanted) * rows.ways
            if sample:
                self.sampled[id(axes)] = self.sampled.get(id(axes), frozenset()) | set(wanted)
        if counted is not None:  # of a mesh that was sampled, what is refused was counted then
            self.space.refused = counted
        self.meshes.append(axes)
        self.blocks += found
        priced = sum(block.size for block in found)
        self.excluded += plans - priced
        self.waiting += priced

    def _usual(self, which: int) -> bool:
        """Whether a set of policies is one that an engineer tries first: nothing runs again, or every block does."""
        plan = self.chosen[which].plan
        return plan.policy(Recompute).option in ("none", "block") and not plan.policy(Offload).moved

    def _may_win(self, rows: MeshRows, wanted: Sequence[int]) -> dict[int, Any]:
        """Of each set of policies the variants whose bounds are below what was found, and fit."""
        if not self._prunes or not rows.ways or self.roomy == float("inf"):
            return dict.fromkeys(wanted, rows.everything)
        limit = self.roomy * (1 + self.effort.margin)
        if all(self._too_slow(rows, which, limit) for which in rows.plainest()):
            return {}
        room = ROOM * self.capacity
        found: dict[int, Any] = {}
        for which in wanted:
            alive = rows.least_seconds(self.bounds, which) <= limit
            if alive.any():
                alive &= rows.least_bytes(self.bounds, which, alive, room) <= room
            if alive.any():
                found[which] = alive
        return found

    def _too_slow(self, rows: MeshRows, which: int, limit: float) -> bool:
        """Whether no plan of a set of policies is below a limit; messages alone cost less to ask than layers."""
        return rows.least_waits(which) > limit or least(rows.least_seconds(self.bounds, which)) > limit

    # pricing

    def _evaluate(self) -> None:
        """Price what was added, slice by slice: what is priced stays, whenever somebody interrupts."""
        if self.begun is None:
            if not self.blocks:
                return
            self.begun, self.blocks = _in_order(self.blocks), []
        columns, order = self.begun
        self.used.update(numpy.unique(columns["program"][order]).tolist())
        fast = available() and (self._prunes or len(order) > FEW or is_compiled())
        if fast and not self.compiling and not was_compiled():
            self.watch(self._so_far(compiling=True))
        engine, tables = kernels(fast), self.parts.table.tables(fast)
        rows = {name: columns[name] for name in PLAN_COLUMNS}
        plans = plan_arrays(rows, order) if fast else plan_rows({name: own[order] for name, own in rows.items()}, False)
        names = numpy.stack([columns[name][order] for name in NAMES], axis=1).astype(numpy.int32)
        held, seconds, memory = _packed(columns, HOLDS)[order], numpy.zeros(len(order)), numpy.zeros(len(order))
        for first in range(0, len(order), SLICE):
            self.begun, self.waiting = (columns, order[first:]), len(order) - first
            own, begin = slice(first, min(first + SLICE, len(order))), time.perf_counter()
            engine.evaluate(tables, plans, own.start, own.stop, seconds)
            engine.evaluate_memory(tables, plans, first + numpy.argsort(held[own], kind="stable"), memory)
            self.compiling += time.perf_counter() - begin if fast and not self.compiling else 0.0
            self.priced.append((names[own], seconds[own], memory[own]))
            self.done += own.stop - own.start
            self.roomy = min(self.roomy, least(seconds[own][memory[own] <= self.room]))
        self.begun, self.waiting = None, 0

    # results

    def _found(self, taken: float, stopped: str) -> SearchResult:
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
            complete=not stopped,
            seen=self._seen() if stopped else 1.0,
            stopped=stopped,
            meshes=space.mesh_count,
            excluded=self.excluded,
            least_seconds=self._least(top[0].step_seconds if top else float("inf"), stopped),
        )
        vars(found)["_plans"] = plans
        return found

    def _seen(self) -> float:
        """The share of the meshes whose plans are priced; those that still wait are not."""
        priced = self.done / max(1, self.done + self.waiting)
        return min(1.0, self.space.looked / max(1, self.space.mesh_count)) * priced

    def _least(self, best: float, stopped: str) -> float:
        """Seconds that no plan of the space takes less than, as far as that is proven."""
        if not stopped:
            return best if best < float("inf") else 0.0
        return min(self._roof, best)

    @functools.cached_property
    def _roof(self) -> float:
        space, trained = self.space, {as_trained_by(one.plan, self.graph) for one in self.chosen}
        return min(roofline(graph, space.job, space.precision, space.cluster) for graph in trained)

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


def _family(axes: tuple[Strategy, ...]) -> Hashable:
    """The axes of a mesh with their ranks, and ranks of experts."""
    return tuple((axis.word, axis.world, getattr(axis, "experts", 1)) for axis in axes)


def _by_model(chosen: Sequence[PolicySet]) -> list[dict[int, PolicySet]]:
    """Sets of policies, those together that leave the model, what its samples share and the order of slots the same."""
    found: dict[Hashable, dict[int, PolicySet]] = defaultdict(dict)
    for which, one in enumerate(chosen):
        alike = (
            trained_weights(one.plan),
            one.plan.policy(BatchNorm),
            one.plan.policy(Recompute).spares,
            one.plan.policy(A2AOverlap),
        )
        found[alike][which] = one
    return list(found.values())
