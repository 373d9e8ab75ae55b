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
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy

from foretell.cost.host import overlap_share
from foretell.cost.memory import memory_constants, usable_bytes
from foretell.cost.stage import Prices
from foretell.oracle.parts import Cared, Chosen, Executed, Keeping, Parts, Piped, Programs
from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.oracle.space import Space, Way
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.precision import Precision
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.program.mesh import mesh, stride
from foretell.program.outline import space_axes
from foretell.program.program import Axis
from foretell.summary import Summarized, plans
from foretell.timeline.columns import PLAN_COLUMNS, REAL, plan_arrays, plan_rows
from foretell.timeline.compiling import available
from foretell.timeline.engine import is_compiled, kernels
from foretell.units import show_bytes

TOP = 10
"""Plans that are told as the best ones, where nobody says how many."""

CHUNK = 200_000
"""Plans that are priced at a time: enough that the start does not count, few enough that they fit a cache."""

FEW = 3_000
"""Plans for which compiling, half a minute on a machine that never did it, does not pay."""


class Finer(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for the leading plans beside what the search varies; see `oracle.finer`."""

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


class Found(Summarized, frozen=True, kw_only=True, dict=True):
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
    finer: tuple[Finer, ...] = ()  # what was chosen beside what the search varies

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


def search(space: Space, most: float = 0.0, watch: Watch | None = None, top: int = TOP) -> Found:
    """Price every plan of a space. `most`: bytes that a device may use, if less than it has.

    Ctrl-C ends it with what was found until then.
    """
    return _Search(space, most, watch or (lambda plans: None), top).run()


SLICE = 16384
"""Plans that are priced between two looks at whether somebody has interrupted."""

NAMES = ("mesh", "which", "place", "microbatches")
"""Where in the space a plan is."""

Columns: TypeAlias = dict[str, Any]
"""Rows of plans in the tables, and where in the space they are: for each column an array."""


class Block(NamedTuple):
    """Plans of a mesh: for each of some sets of policies every way to run it."""

    shape: tuple[int, int]  # how many of these
    columns: Columns  # each is repeated until it has this shape

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]


PLAYED = ("order", "partition", "shorter_order")
"""Plans that have these in common lie next to each other: they are played together."""

TAKES = ("launch_profile", "sends", "program", "traffic")
"""And of those the ones next to each other that have these in common too, as many as possible: they take as long."""

UNROLLED = ("order", "moments", "shorter_order", "rounds")
"""What a plan's row has of its schedule."""

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
        self.ways: dict[Hashable, Ways] = {}
        self.holds: dict[Hashable, list[int]] = {}
        self.blocks: list[Block] = []
        self.waiting = 0  # plans in these
        self.begun: tuple[Columns, Any] | None = None  # plans that are being priced, and the order of those still to be
        self.priced: list[tuple[Any, Any, Any]] = []  # names, seconds, bytes
        self.used: set[int] = set()  # local programs
        self.done = 0

    def run(self) -> Found:
        with _nothing_collected():
            return self._run()

    def _run(self) -> Found:
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
        found = [block for own in self.alike for block in _Meshed(self, axes, own).blocks()]
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
        engine, tables = kernels(fast), self.parts.builder.tables(fast)
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

    def _found(self, taken: float, complete: bool) -> Found:
        space = self.space
        empty = (numpy.zeros((0, len(NAMES)), numpy.int32), numpy.zeros(0), numpy.zeros(0))
        names, seconds, memory = (numpy.concatenate(parts) for parts in zip(*(self.priced or [empty]), strict=True))
        plans = PricedPlans(seconds, memory, self.capacity, lambda at: self._named(names[at]))
        top = plans.fastest(self.top)
        found = Found(
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


def _in_order(blocks: Sequence[Block]) -> tuple[Columns, Any]:
    """Plans of several blocks, one after the other, and the order in which they are played."""
    columns = {name: _one_column(name, blocks) for name in blocks[0].columns}
    return columns, numpy.lexsort([_packed(columns, TAKES), _packed(columns, PLAYED)])


def _one_column(name: str, blocks: Sequence[Block]) -> Any:
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


def _by_model(chosen: Sequence[Chosen]) -> list[dict[int, Chosen]]:
    """Sets of policies, those together that leave the model, and what its samples share, the same."""
    found: dict[Hashable, dict[int, Chosen]] = defaultdict(dict)
    for which, one in enumerate(chosen):
        found[one.plan.policy(Lora), one.plan.policy(BatchNorm)][which] = one
    return list(found.values())


class Ways(NamedTuple):
    """Which of a mesh's pipelines takes which of its counts of micro-batches: a row each."""

    number: int
    pipelines: list[Piped]  # those that any count suits
    own: Any  # the place of the pipeline among these
    count: Any  # the place of the count among those of the mesh
    shapes: Any  # of stages
    columns: Columns  # what is known of them whatever the mesh

    def each(self, figures: Sequence[Sequence[int]]) -> Any:
        """Figures of pipelines for each of some sets of policies, as figures of each way."""
        return numpy.array(figures, dtype=numpy.int64)[:, self.own]


class _Meshed:
    """One mesh: the parts of its plans, priced, and its plans as rows."""

    def __init__(self, search: _Search, axes: tuple[Strategy, ...], chosen: dict[int, Chosen]) -> None:
        self.search, self.axes, self.space, self.parts = search, axes, search.space, search.parts
        self.chosen = chosen  # sets of policies with the same model, by their places
        self.plan = Plan(axes, next(iter(chosen.values())).policies)
        self.mesh = mesh(self.plan)
        self.model = self.parts.lowered(self.mesh, self.plan)
        self.ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        self.counts = self.space.counts(axes)
        share = self.space.job.batch // batch_ranks(self.plan)
        self.samples = [share // count for count in self.counts]
        self.named = [Axis(axis.name, axis.ranks, stride(self.mesh, (axis.name,))) for axis in self.mesh]
        self.local_axes = space_axes(self.mesh, self.plan, search.graph)
        where = tuple((axis.name, axis.stride) for axis in self.named if axis.name not in ("pp", "dp", "shard"))
        self.where = self.parts.number((self.model.number, self.local_axes, where))
        self.executions: dict[int, Launched] = {}
        self.keepings: dict[Hashable, Keeping] = {}
        self.cares: dict[Hashable, CaredWays] = {}
        self.sends: dict[Hashable, list[int]] = {}

    def blocks(self) -> Iterator[Block]:
        """All plans of the mesh: one block, or none."""
        ways = self._ways()
        if not len(ways.own):
            return
        wanted = [which for which, one in self.chosen.items() if self.space.allowed(self.axes, one.policies)]
        if wanted:
            rows = [self._row(self.chosen[which], ways) for which in wanted]
            fixed = {**ways.columns, **self._constants(ways), "mesh": len(self.search.meshes)}
            own = {"which": numpy.array(wanted)[:, None], **self._columns(rows, ways)}
            yield Block((len(wanted), len(ways.own)), {**fixed, **own})

    def _columns(self, rows: Sequence[ChosenRow], ways: Ways) -> Columns:
        """What is known of all ways with each set of policies."""
        programs, offset, sends, holds, care, manner, share = zip(*rows, strict=True)
        places = numpy.array(offset)[:, ways.count]
        later = places * ways.shapes
        return {
            "program": numpy.array(programs)[:, None] + places,
            "sends": ways.each(sends) + later,
            "peaks": ways.each(holds) + later,
            "traffic": ways.each(care),
            "launch_profile": numpy.array(manner)[:, None],
            "overlap": numpy.array(share)[:, None],
        }

    def _ways(self) -> Ways:
        key = (self.model.number, self.ranks, self.counts)
        if key not in self.search.ways:
            self.search.ways[key] = self._scheduled()
        return self.search.ways[key]

    def _scheduled(self) -> Ways:
        pipelines = self.space.pipelines(self.ranks)
        found = [
            (place, at)
            for place, pipeline in enumerate(pipelines)
            for at, count in enumerate(self.counts)
            if self.space.schedulable(pipeline, count)
        ]
        places = sorted({place for place, _ in found})
        piped = [self.parts.piped(self.model, pipelines[place]) for place in places]
        own = [places.index(place) for place, _ in found]
        played = [
            self.parts.played(piped[at].cut, self.counts[count]) for at, (_, count) in zip(own, found, strict=True)
        ]
        count = numpy.array([at for _, at in found], dtype=numpy.int64)
        columns = {
            **{
                name: numpy.array([row[name] for row in played])
                for name in ("order", "moments", "shorter_order", "rounds")
            },
            "partition": numpy.array([piped[at].row for at in own]),
            "splits": numpy.array([piped[at].cut.schedule.splits_backward for at in own]),
            "place": numpy.array([place for place, _ in found]),
            "microbatches": numpy.array(self.counts)[count],
        }
        shapes = numpy.array([len(piped[at].cut.shapes) for at in own])
        return Ways(len(self.search.ways), piped, numpy.array(own, dtype=numpy.int64), count, shapes, columns)

    def _row(self, chosen: Chosen, ways: Ways) -> ChosenRow:
        executed = self.parts.executed(chosen)
        launched = self._launched(chosen, executed)
        programs = self.parts.programs(
            self.model, self.local_axes, chosen, executed, launched.prices, self.samples, self.where
        )
        cared = self._cared(chosen, executed, launched, ways, programs)
        return ChosenRow(
            programs.row,
            [programs.place[count] for count in self.samples],
            self._sends(programs, executed, launched, ways),
            self._holds(programs, cared, chosen, ways),
            cared.rows,
            launched.manner,
            launched.share,
        )

    def _launched(self, chosen: Chosen, executed: Executed) -> Launched:
        if executed.number not in self.executions:
            trainer, cluster = executed.trainer, self.search.cluster
            plan = Plan(self.axes, chosen.policies)
            prices = Prices(self.named, cluster, plan.policy(Precision).format, trainer, executed.messages)
            tensor = plan.axis(Tensor)
            ranks, across = tensor.ranks if tensor else 1, self.ranks > 1 and cluster.nodes > 1
            how = (executed.number, ranks, across)
            manner = self.parts.builder.launch_profile(how, trainer.host, ranks, across, trainer.storage.prefetch)
            share = overlap_share(plan, trainer, self.ranks > 1)
            self.executions[executed.number] = Launched(prices, manner, share)
        return self.executions[executed.number]

    def _sends(self, programs: Programs, executed: Executed, launched: Launched, ways: Ways) -> list[int]:
        """For each pipeline the row of what crosses between its stages."""
        key = (programs.layouts, executed.number)
        if key not in self.sends:
            prices = launched.prices
            self.sends[key] = [self.parts.sends(programs, piped, executed, prices) for piped in ways.pipelines]
        return self.sends[key]

    def _holds(self, programs: Programs, cared: CaredWays, chosen: Chosen, ways: Ways) -> list[int]:
        """For each pipeline the row of what its micro-batches hold; other meshes may have the same."""
        key = (programs.row, ways.number, chosen.held, cared.gathered)
        known = self.search.holds
        if key not in known:
            each = zip(ways.pipelines, cared.pipelines, strict=True)
            known[key] = [self.parts.holds(programs, *one, chosen) for one in each]
        return known[key]

    def _cared(
        self, chosen: Chosen, executed: Executed, launched: Launched, ways: Ways, programs: Programs
    ) -> CaredWays:
        """The care of the weights for each pipeline."""
        key = (chosen.care, executed.number)
        if key not in self.cares:
            local, prices = programs.parts[0][0], launched.prices
            if chosen.care not in self.keepings:
                known = next((one.alike for one in self.keepings.values()), None)
                self.keepings[chosen.care] = self.parts.keeping(self.model, self.mesh, chosen, local, prices, known)
            keeping = self.keepings[chosen.care]
            found = [self.parts.cared(piped, local, executed, keeping, prices) for piped in ways.pipelines]
            gathered = self.parts.number(("gathered", tuple(one.gathered for one in found)))
            self.cares[key] = CaredWays(found, gathered, [one.row for one in found])
        return self.cares[key]

    def _constants(self, ways: Ways) -> Columns:
        """What a trainer adds to memory."""
        samples = numpy.array([self.space.job.batch // count for count in self.counts])
        setting = self.parts.setting(self.plan)
        found = memory_constants(setting, self.mesh, self.search.cluster, samples)._asdict()
        return {name: value if isinstance(value, float) else value[ways.count] for name, value in found.items()}


class CaredWays(NamedTuple):
    """How the weights of a mesh are cared for."""

    pipelines: list[Cared]  # with each of them
    gathered: int  # a number for the bytes that they gather
    rows: list[int]  # of the care with each


class ChosenRow(NamedTuple):
    """What is known of a mesh with a set of policies: rows of the tables."""

    programs: int  # of the first number of samples
    offset: list[int]  # how many rows after it that of each count of micro-batches is
    sends: list[int]  # with each pipeline, of the first number of samples
    holds: list[int]
    care: list[int]
    manner: int
    share: float


class Launched(NamedTuple):
    """How a trainer runs a mesh: its prices, the row of how it launches, and how fast gradients travel meanwhile."""

    prices: Prices
    manner: int
    share: float
