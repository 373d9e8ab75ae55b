"""The best plan there is: every plan of a space priced, time and memory, and the best of them told.

Parts that plans have in common are priced once: local programs, cuttings, the care of weights, orders of slots. A plan
is then a row of places in tables, and the recurrence that predicts one plan goes over all rows (`timeline.recurrence`).
So what is found for a plan is what `predict` says of it, to the last digit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy

from foretell.cost.care import CareFigures, care_figures
from foretell.cost.host import as_executed
from foretell.cost.memory import Constants, memory_constants
from foretell.cost.stage import Prices
from foretell.model.resize import with_samples
from foretell.oracle.predict import USABLE
from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.oracle.space import Space, Way
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import MeshAxis, Splitting, Strategy
from foretell.program.cutting import Cutting, cutting
from foretell.program.local import Local
from foretell.program.mesh import mesh, stride
from foretell.program.outline import as_lowered, local_of
from foretell.program.program import Axis
from foretell.program.upkeep import Upkeep
from foretell.timeline import recurrence
from foretell.timeline.compiling import available, compiled
from foretell.timeline.order import played
from foretell.timeline.sheet import layer_kinds, passing, share
from foretell.timeline.tables import PLAN_COLUMNS, REAL, Builder, Plans

TOP = 10
"""Plans that are told as the best ones, where nobody says how many."""

CHUNK = 200_000
"""Plans that are priced at a time: enough that the start does not count, few enough that they fit a cache."""


class Found(msgspec.Struct, frozen=True, kw_only=True, dict=True):
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

    @property
    def plans(self) -> PricedPlans:
        """Every plan that was priced."""
        return vars(self)["_plans"]


class Mesh(NamedTuple):
    """One mesh with all that its plans have in common."""

    axes: tuple[Strategy, ...]
    mesh: tuple[MeshAxis, ...]
    pipeline: int  # its ranks


class Rows:
    """Plans as columns of numbers, as many as fit a chunk, with where each came from."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Any]] = []
        self.count = 0

    def add(self, rows: dict[str, Any]) -> None:
        self.parts.append(rows)
        self.count += len(rows["local"])

    def columns(self) -> dict[str, Any]:
        return {name: numpy.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}


Watch: TypeAlias = Callable[[int], None]
"""Told after each mesh how many plans there are so far; `Space.looked` says how far it is."""


def search(space: Space, most: float = 0.0, watch: Watch | None = None, top: int = TOP) -> Found:
    """Price every plan of a space. `most`: bytes that a device may use, if less than it has.

    Ctrl-C ends it with what was found until then.
    """
    return _Search(space, most, watch or (lambda plans: None), top).run()


class _Search:
    def __init__(self, space: Space, most: float, watch: Watch, top: int) -> None:
        self.space, self.watch, self.top = space, watch, top
        self.graph, self.cluster, self.trainer = space.graph, space.cluster, space.trainer
        self.capacity = min(most or float("inf"), USABLE * space.cluster.device.memory_bytes)
        self.builder = Builder([level.name for level in space.cluster.levels])
        self.meshes: list[tuple[Strategy, ...]] = []
        self.ways: dict[int, list[tuple[Pipeline, int]]] = {}
        self.chosen: list[tuple[Policy, ...]] = list(space.policies)
        self.locals: dict[Hashable, tuple[int, Local]] = {}
        self.rows = Rows()
        self.priced: list[tuple[Any, Any, Any]] = []  # names, seconds, bytes
        self.done = 0

    def run(self) -> Found:
        start = time.perf_counter()
        complete = True
        try:
            for axes in self.space.meshes():
                self._mesh(axes)
                self.watch(self.done + self.rows.count)
                if self.rows.count >= CHUNK:
                    self._evaluate()
        except KeyboardInterrupt:
            complete = False
        self._evaluate()
        return self._found(time.perf_counter() - start, complete)

    # rows

    def _mesh(self, axes: tuple[Strategy, ...]) -> None:
        """All plans of a mesh."""
        plan = Plan(axes, self.chosen[0])
        found = _Meshed(self, axes, plan)
        number = len(self.meshes)
        self.meshes.append(axes)
        pipelines = self.space.pipelines(found.ranks)
        counts = self.space.counts(axes)
        for which, chosen in enumerate(self.chosen):
            if not self.space.allowed(axes, chosen):
                continue
            for place, pipeline in enumerate(pipelines):
                able = [m for m in counts if self.space.schedulable(pipeline, m)]
                if able:
                    self.rows.add(found.rows(number, which, chosen, place, pipeline, able))

    # pricing

    def _evaluate(self) -> None:
        if not self.rows.count:
            return
        columns = self.rows.columns()
        count = self.rows.count
        seconds, memory = numpy.zeros(count), numpy.zeros(count)
        plans = _plans(columns)
        if available():
            kernels = compiled(recurrence.__name__)
            kernels.evaluate(self.builder.arrays(), plans, 0, count, seconds, memory)
        else:
            lists = plans._replace(f=plans.f.tolist(), i=plans.i.tolist())
            recurrence.evaluate(self.builder.lists(), lists, 0, count, seconds, memory)
        names = numpy.stack([columns[name] for name in ("mesh", "which", "place", "microbatches")], 1)
        self.priced.append((names, seconds, memory))
        self.done += count
        self.rows = Rows()

    # results

    def _found(self, taken: float, complete: bool) -> Found:
        space = self.space
        empty = (numpy.zeros((0, 4), int), numpy.zeros(0), numpy.zeros(0))
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
            local_programs=len(self.locals),
            seconds=taken,
            plans_per_second=len(plans) / taken,
            best=top[0] if top else None,
            top=top,
            pareto=plans.front(),
            nearest=next(iter(plans.smallest(1)), None),
            complete=complete,
        )
        vars(found)["_plans"] = plans
        return found

    def _named(self, name: Any) -> Plan:
        number, which, place, count = (int(value) for value in name)
        axes = self.meshes[number]
        ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        return self.space.plan(axes, Way(self.space.pipelines(ranks)[place], count, self.chosen[which]))


def _plans(columns: dict[str, Any]) -> Plans:
    places: dict[str, int] = {}
    real: list[Any] = []
    whole: list[Any] = []
    count = len(columns["local"])
    for name in PLAN_COLUMNS:
        to = real if name in REAL else whole
        places[name] = len(to) * count
        to.append(columns[name])
    f = numpy.concatenate(real).astype(numpy.float64)
    i = numpy.concatenate(whole).astype(numpy.int64)
    return Plans(f=f, i=i, **places)


class _Meshed:
    """One mesh: the parts of its plans, priced."""

    def __init__(self, search: _Search, axes: tuple[Strategy, ...], plan: Plan) -> None:
        self.search, self.axes = search, axes
        self.space, self.cluster = search.space, search.cluster
        self.mesh = mesh(plan)
        self.graph = as_lowered(search.graph, self.mesh)
        self.ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        self.splits = batch_ranks(plan)
        self.local_axes, self.ways = _as_local(self.mesh)
        self.setting = search.space.setting(plan)
        self.form = plan.policy(Precision).format
        self.trainer = as_executed(self.setting)
        self.prices = Prices(self._named(self.mesh), self.cluster, self.form, self.trainer)
        tensor = plan.axis(Tensor)
        ranks = tensor.ranks if tensor else 1
        across = self.ranks > 1 and self.cluster.nodes > 1
        self.manner = search.builder.manner(
            (ranks, across), self.trainer.host, ranks, across, self.trainer.storage.prefetch
        )

    @staticmethod
    def _named(axes: tuple[MeshAxis, ...]) -> list[Axis]:
        return [Axis(axis.name, axis.ranks, stride(axes, (axis.name,))) for axis in axes]

    def rows(
        self,
        number: int,
        which: int,
        chosen: tuple[Policy, ...],
        place: int,
        pipeline: Pipeline,
        counts: list[int],
    ) -> dict[str, Any]:
        """The plans of one pipeline and one set of policies, with each number of micro-batches."""
        builder = self.search.builder
        plan = self.space.plan(self.axes, Way(pipeline, counts[0], chosen))
        setting = Setting(self.setting.graph, self.setting.job, plan, self.setting.trainer)
        upkeep = Upkeep(setting, self.mesh)
        cut = cutting(self.graph, pipeline, self.trainer.pipeline.split)
        first = self._local(plan, counts[0])[1]
        cares = tuple(care_figures(cut, shape, first, upkeep, self.prices) for shape in cut.shapes)
        spans = [[(cut.kinds.index(kind), times) for kind, times, *_ in shape.layers] for shape in cut.shapes]
        rows: dict[str, list[Any]] = {name: [] for name in (*PLAN_COLUMNS, "microbatches")}
        fixed = {
            "cut": builder.cut(cut, list(zip(spans, cut.layers, strict=True)), cut.stage_shapes),
            "care": builder.care((cut, upkeep.key, self.prices.strides, first.weights_key), cares),
            "manner": self.manner,
            "splits": cut.schedule.splits_backward,
            "share": share(setting, self.trainer, self.ranks > 1),
        }
        for count in counts:
            row, local = self._local(plan, count)
            done = played(cut.schedule.name, cut.ranks, count, cut.chunks)
            how = (cut.schedule.name, cut.ranks, count, cut.chunks)
            rows["local"].append(row)
            rows["passes"].append(self._passes(local, cut, plan, upkeep, cares))
            rows["order"].append(builder.order(how, done.order, done.moments))
            before = done.before
            rows["before"].append(builder.order((*how, "before"), before, before.moments) if before else -1)
            rows["rounds"].append(done.rounds)
            rows["microbatches"].append(count)
            for name, value in (*fixed.items(), *self._constants(setting, count)._asdict().items()):
                rows[name].append(value)
        found = {name: numpy.array(values) for name, values in rows.items()}
        for name, value in (("mesh", number), ("which", which), ("place", place)):
            found[name] = numpy.full(len(counts), value)
        return found

    def _constants(self, setting: Setting, count: int) -> Constants:
        graph = with_samples(self.search.graph, setting.job.batch // count)
        return memory_constants(Setting(graph, setting.job, setting.plan, setting.trainer), self.mesh)

    def _local(self, plan: Plan, count: int) -> tuple[int, Local]:
        """The local program of a micro-batch, and its row."""
        search = self.search
        samples = self.space.job.batch // (self.splits * count)
        graph = as_lowered(with_samples(search.graph, samples * self.ways), self.local_axes)
        local = local_of(graph, self.local_axes, plan, self.trainer)
        talks = tuple(self.prices.axes[name] for name in local.talks)
        key = (local, talks, self.form)
        if key not in search.locals:
            kinds = layer_kinds(cutting(graph, Pipeline(ranks=1), self.trainer.pipeline.split), local, self.prices)
            search.locals[key] = search.builder.local(key, list(kinds.values())), local
        return search.locals[key]

    def _passes(self, local: Local, cut: Cutting, plan: Plan, upkeep: Upkeep, cares: tuple[CareFigures, ...]) -> int:
        gathered = tuple((care.gathered, care.root_bytes) for care in cares)
        pipeline = self.prices.axes.get("pp")
        key = (local, cut, plan.policy(Recompute), gathered, upkeep.reshards, pipeline)
        builder = self.search.builder
        if ("passes", key) not in builder.known:
            return builder.passes(key, passing(cut, local, plan, upkeep.reshards, self.prices, cares))
        return builder.known["passes", key]


PLAIN = Splitting(dim="sample")


def _as_local(axes: tuple[MeshAxis, ...]) -> tuple[tuple[MeshAxis, ...], int]:
    """A mesh as far as local programs tell it apart, and ranks that split the batch in it.

    Along an axis that divides samples alone, two ranks do what any number does.
    """
    found: list[MeshAxis] = []
    ways = 1
    for axis in axes:
        if axis.name == "pp":
            continue
        plain = axis.splitting == PLAIN
        kept = replace(axis, ranks=2 if plain else axis.ranks, storage=STORAGES["replicated"])
        found.append(kept)
        ways *= kept.ranks if axis.splitting.dim == "sample" else 1
    return tuple(found), ways
