"""The best plan there is: every plan of a space priced, time and memory, and the best of them told.

Parts that plans have in common are priced once: local programs, cuttings, the care of weights, orders of slots. A plan
is then a row of places in tables, and the recurrence that predicts one plan goes over all rows (`timeline.recurrence`).
So what is found for a plan is what `predict` says of it, to the last digit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy

from foretell.cost.care import CareFigures, care_figures
from foretell.cost.host import as_executed, overlap_share
from foretell.cost.memory import memory_constants, usable_bytes
from foretell.cost.stage import Prices
from foretell.model.resize import skeleton, with_samples
from foretell.oracle.priced_plans import Candidate, PricedPlans
from foretell.oracle.space import Space, Way
from foretell.plan.job import batch_ranks
from foretell.plan.plan import Plan
from foretell.plan.policies.batchnorm import BatchNorm
from foretell.plan.policies.bucket import Bucket
from foretell.plan.policies.compression import Compression
from foretell.plan.policies.execution import Execution
from foretell.plan.policies.imbalance import Imbalance
from foretell.plan.policies.lora import Lora
from foretell.plan.policies.offload import Offload
from foretell.plan.policies.overlap import Overlap
from foretell.plan.policies.precision import Precision
from foretell.plan.policies.recompute import Recompute
from foretell.plan.policy import Policy
from foretell.plan.setting import Setting
from foretell.plan.storage import STORAGES
from foretell.plan.strategies.pipeline import Pipeline
from foretell.plan.strategies.tensor import Tensor
from foretell.plan.strategy import Strategy
from foretell.plan.trainer import Trainer
from foretell.program.cutting import Cutting, cutting
from foretell.program.local import Local
from foretell.program.mesh import mesh, stride
from foretell.program.outline import as_lowered, local_of
from foretell.program.program import Axis
from foretell.program.upkeep import Upkeep, plain_axes
from foretell.timeline import recurrence
from foretell.timeline.compiling import available, compiled, loaded
from foretell.timeline.order import played
from foretell.timeline.sheet import layer_kinds, passing
from foretell.timeline.tables import PLAN_COLUMNS, Builder, Plans, joined, real_array, whole_array
from foretell.units import product

TOP = 10
"""Plans that are told as the best ones, where nobody says how many."""

CHUNK = 200_000
"""Plans that are priced at a time: enough that the start does not count, few enough that they fit a cache."""

FEW = 3_000
"""Plans for which compiling, half a minute on a machine that never did it, does not pay."""


class Finer(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for the leading plans beside what the search varies; see `oracle.finer`."""

    what: str  # is chosen: stages
    tried: int  # plans for which it was
    before: Candidate | None  # the best plan of the search itself; None: nothing fits
    plan: str = ""  # the best with what is chosen; empty: that is no better
    usual: Candidate | None = None  # the same plan without it
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
    finer: Finer | None = None  # None: nothing was chosen beside what the search varies

    @property
    def plans(self) -> PricedPlans:
        """Every plan that was priced."""
        return vars(self)["_plans"]


Watch: TypeAlias = Callable[[int], None]
"""Told after each mesh how many plans there are so far; `Space.looked` says how far it is."""


def search(space: Space, most: float = 0.0, watch: Watch | None = None, top: int = TOP) -> Found:
    """Price every plan of a space. `most`: bytes that a device may use, if less than it has.

    Ctrl-C ends it with what was found until then.
    """
    return _Search(space, most, watch or (lambda plans: None), top).run()


SLICE = 4096
"""Plans that are priced between two looks at whether somebody has interrupted."""

COLUMNS = (*PLAN_COLUMNS, "mesh", "which", "place", "microbatches")
"""What is known of a plan: its row in the tables, and where in the space it is."""


class _Search:
    def __init__(self, space: Space, most: float, watch: Watch, top: int) -> None:
        self.space, self.watch, self.top = space, watch, top
        self.graph, self.cluster, self.trainer = space.graph, space.cluster, space.trainer
        self.capacity = min(most or float("inf"), usable_bytes(space.trainer, space.cluster))
        self.builder = Builder([level.name for level in space.cluster.levels])
        self.meshes: list[tuple[Strategy, ...]] = []
        self.chosen = [Chosen.of(policies, space) for policies in space.policies]
        self.locals: dict[Hashable, tuple[int, Local]] = {}
        self.known: dict[Hashable, int] = {}  # rows of what crosses and is held, and of orders
        self.cuts: dict[Cutting, int] = {}
        self.orders: dict[Hashable, tuple[int, int, int]] = {}
        self._messages: dict[Trainer, dict[Any, float]] = {}
        self.rows: list[tuple[Any, ...]] = []
        self.priced: list[tuple[Any, Any, Any]] = []  # names, seconds, bytes
        self.done = 0

    def run(self) -> Found:
        start = time.perf_counter()
        complete = True
        try:
            for axes in self.space.meshes():
                _Meshed(self, axes).add_rows()
                self.watch(self.done + len(self.rows))
                if len(self.rows) >= CHUNK:
                    self._evaluate()
            self._evaluate()
        except KeyboardInterrupt:
            complete = False
            with suppress(KeyboardInterrupt):  # who asks again does not even want these
                self._evaluate()
        return self._found(time.perf_counter() - start, complete)

    def messages(self, trainer: Trainer) -> dict[Any, float]:
        """Seconds of messages that were priced, with this trainer."""
        return self._messages.setdefault(trainer, {})

    # pricing

    def _evaluate(self) -> None:
        """Price what was added, slice by slice: what is priced stays, whenever somebody interrupts."""
        if not self.rows:
            return
        fast = available() and (len(self.rows) > FEW or loaded(recurrence.__name__))
        kernels: Any = compiled(recurrence.__name__) if fast else recurrence
        tables = self.builder.arrays() if fast else self.builder.lists()
        while self.rows:
            own = self.rows[:SLICE]
            columns = dict(zip(COLUMNS, zip(*own, strict=True), strict=True))
            places, real, whole = joined({name: columns[name] for name in PLAN_COLUMNS})
            plans = Plans(f=real_array(real) if fast else real, i=whole_array(whole) if fast else whole, **places)
            seconds, memory = numpy.zeros(len(own)), numpy.zeros(len(own))
            kernels.evaluate(tables, plans, 0, len(own), seconds, memory)
            self.priced.append((numpy.array([columns[name] for name in COLUMNS[-4:]]).T, seconds, memory))
            self.done += len(own)
            self.rows = self.rows[SLICE:]

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
        way = Way(self.space.pipelines(ranks)[place], count, self.chosen[which].policies)
        return self.space.plan(axes, way)


class Chosen(NamedTuple):
    """A set of policies, and what of it each part of a plan asks for."""

    policies: tuple[Policy, ...]
    plan: Plan  # of these policies alone
    local: Hashable  # what local programs depend on
    held: Hashable  # and what is held of a micro-batch
    care: Hashable  # and the care of weights
    execution: Hashable  # and the way of launching

    @classmethod
    def of(cls, policies: tuple[Policy, ...], space: Space) -> Chosen:
        plan = Plan(policies=policies)
        offload, precision = plan.policy(Offload), plan.policy(Precision)
        local = (plan.policy(Recompute).again, offload.activations, plan.policy(Imbalance), plan.policy(BatchNorm))
        care = (offload, precision, plan.policy(Bucket), plan.policy(Compression))
        execution = (plan.policy(Execution), plan.policy(Overlap))
        return cls(policies, plan, local, (plan.policy(Recompute), offload.activations), care, execution)


class Executed(NamedTuple):
    """A trainer as policies have it: its prices, and the row of its way of launching."""

    trainer: Trainer
    prices: Prices
    manner: int


class _Meshed:
    """One mesh: the parts of its plans, priced, and its plans as rows."""

    def __init__(self, search: _Search, axes: tuple[Strategy, ...]) -> None:
        self.search, self.axes, self.space, self.cluster = search, axes, search.space, search.cluster
        self.plan = Plan(axes, search.chosen[0].policies)
        self.mesh = mesh(self.plan)
        self.graph = as_lowered(self.plan.policy(Lora).trained(search.graph), self.mesh)
        self.skeleton = skeleton(self.graph)
        self.ranks = next((axis.ranks for axis in axes if isinstance(axis, Pipeline)), 1)
        self.splits = batch_ranks(self.plan)
        self.form = self.plan.policy(Precision).format
        self.named = [Axis(axis.name, axis.ranks, stride(self.mesh, (axis.name,))) for axis in self.mesh]
        self.executions: dict[Hashable, Executed] = {}
        plain = plain_axes(self.mesh, self.plan, search.graph)  # of these a rank does what it does alone
        inside = [axis for axis in self.mesh if axis.name != "pp" and axis not in plain]
        self.local_axes = tuple(replace(axis, storage=STORAGES["replicated"]) for axis in inside)
        self.ways = product(axis.ranks for axis in self.local_axes if axis.splitting.dim == "sample")
        self.upkeeps: dict[Hashable, Upkeep] = {}
        self.cares: dict[Hashable, tuple[int, tuple[CareFigures, ...], Hashable]] = {}
        self.constants: dict[int, tuple[float, ...]] = {}

    def _setting(self, plan: Plan) -> Setting:
        return Setting(self.search.graph, self.space.job, plan, self.space.trainer)

    def _executed(self, plan: Plan, chosen: Chosen) -> Executed:
        """The trainer as a set of policies has it, and its prices."""
        if chosen.execution not in self.executions:
            trainer = as_executed(self._setting(plan))
            prices = Prices(self.named, self.cluster, self.form, trainer, self.search.messages(trainer))
            tensor = plan.axis(Tensor)
            ranks, across = tensor.ranks if tensor else 1, self.ranks > 1 and self.cluster.nodes > 1
            prefetch = trainer.storage.prefetch
            manner = self.search.builder.manner((trainer, ranks, across), trainer.host, ranks, across, prefetch)
            self.executions[chosen.execution] = Executed(trainer, prices, manner)
        return self.executions[chosen.execution]

    def add_rows(self) -> None:
        """All plans of the mesh."""
        search, number = self.search, len(self.search.meshes)
        search.meshes.append(self.axes)
        pipelines, counts = self.space.pipelines(self.ranks), self.space.counts(self.axes)
        able_at = {
            place: [count for count in counts if self.space.schedulable(pipeline, count)]
            for place, pipeline in enumerate(pipelines)
        }
        for which, chosen in enumerate(search.chosen):
            if not self.space.allowed(self.axes, chosen.policies):
                continue
            plan = Plan(self.axes, chosen.policies)
            executed = self._executed(plan, chosen)
            fast = overlap_share(self._setting(plan), executed.trainer, self.ranks > 1)
            locals_ = {count: self._local(plan, chosen, executed, count) for count in counts}
            for place, pipeline in enumerate(pipelines):
                able = able_at[place]
                if not able:
                    continue
                cut = cutting(self.skeleton, pipeline, executed.trainer.pipeline.split)
                cut_row = self._cut(cut)
                care_row, cares, gathered = self._care(plan, chosen, executed, cut, locals_[able[0]][1])
                splits = cut.schedule.splits_backward
                for count in able:
                    local_row, local = locals_[count]
                    order, before, rounds = self._order(cut, count)
                    passes = self._passes(local_row, local, cut_row, cut, plan, chosen, executed, cares, gathered)
                    parts = (local_row, cut_row, passes, care_row, executed.manner, order, before, rounds)
                    search.rows.append((*parts, splits, fast, *self._constants(count), number, which, place, count))

    def _local(self, plan: Plan, chosen: Chosen, executed: Executed, count: int) -> tuple[int, Local]:
        """The local program of a micro-batch, and its row."""
        samples = self.space.job.batch // (self.splits * count)
        key = (self.local_axes, executed.prices.strides_inside, samples, chosen.local, executed.trainer)
        if key not in self.search.locals:
            graph = with_samples(self.graph, samples * self.ways)
            local = local_of(graph, self.local_axes, plan, executed.trainer)
            whole = cutting(self.skeleton, Pipeline(ranks=1), executed.trainer.pipeline.split)
            kinds = layer_kinds(whole, local, executed.prices)
            self.search.locals[key] = self.search.builder.local(key, list(kinds.values())), local
        return self.search.locals[key]

    def _cut(self, cut: Cutting) -> int:
        if cut not in self.search.cuts:
            spans = [[(cut.kinds.index(kind), times) for kind, times, *_ in shape.layers] for shape in cut.shapes]
            shapes = list(zip(spans, cut.layers, strict=True))
            self.search.cuts[cut] = self.search.builder.cut(cut, shapes, cut.stage_shapes)
        return self.search.cuts[cut]

    def _order(self, cut: Cutting, count: int) -> tuple[int, int, int]:
        builder = self.search.builder
        how = (cut.schedule.name, cut.ranks, count, cut.chunks)
        if how in self.search.orders:
            return self.search.orders[how]
        done = played(*how)
        row = builder.order(how, done.order, done.moments)
        before = builder.order((*how, "before"), done.before, ()) if done.before else -1
        self.search.orders[how] = row, before, done.rounds
        return self.search.orders[how]

    def _care(
        self, plan: Plan, chosen: Chosen, executed: Executed, cut: Cutting, local: Local
    ) -> tuple[int, tuple[CareFigures, ...], Hashable]:
        key = (cut, chosen.care, chosen.execution)
        if key not in self.cares:
            if chosen.care not in self.upkeeps:
                self.upkeeps[chosen.care] = Upkeep(self._setting(plan), self.mesh)
            upkeep = self.upkeeps[chosen.care]
            cares = tuple(care_figures(cut, shape, local, upkeep, executed.prices) for shape in cut.shapes)
            row = self.search.builder.care(
                (cut, upkeep.key, executed.trainer, executed.prices.strides, local.weights_key), cares
            )
            gathered = (upkeep.reshards, tuple((one.gathered, one.root_bytes) for one in cares))
            self.cares[key] = row, cares, gathered
        return self.cares[key]

    def _passes(
        self,
        local_row: int,
        local: Local,
        cut_row: int,
        cut: Cutting,
        plan: Plan,
        chosen: Chosen,
        executed: Executed,
        cares: tuple[CareFigures, ...],
        gathered: Hashable,
    ) -> int:
        key = (local_row, cut_row, chosen.held, gathered, executed.prices.axes.get("pp"))
        if key not in self.search.known:
            whole = (cut, *key[2:], executed.prices.key)  # another search may have asked
            if whole not in local.priced:
                reshards = self.upkeeps[chosen.care].reshards
                local.priced[whole] = passing(cut, local, plan, reshards, executed.prices, cares)
            self.search.known[key] = self.search.builder.passes(key, local.priced[whole])
        return self.search.known[key]

    def _constants(self, count: int) -> tuple[float, ...]:
        """What a trainer adds to memory."""
        if count not in self.constants:
            graph = with_samples(self.search.graph, self.space.job.batch // count)
            setting = Setting(graph, self.space.job, self.plan, self.space.trainer)
            self.constants[count] = tuple(memory_constants(setting, self.mesh, self.cluster))
        return self.constants[count]
