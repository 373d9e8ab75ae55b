"""A question with everything loaded that it names: the one place where a plan meets model, job and trainer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from foretell.errors import BadInput
from foretell.hardware.cluster import Cluster
from foretell.model.evaluated import evaluated
from foretell.model.graph import Graph
from foretell.model.resize import with_samples
from foretell.model.source import load, other_reading
from foretell.oracle.advice import harmless
from foretell.oracle.calibrations import NONE, CalibratedPlace, as_measured
from foretell.oracle.predict import Prediction, predict
from foretell.oracle.request import MeasurementFiles, Request
from foretell.oracle.ways_out import PlansNear, WayOut
from foretell.plan.fitness import all_passing, broken, fits, passing
from foretell.plan.job import as_options, batch_ranks, make_job, micro_batch, per_rank
from foretell.plan.offered import says_less
from foretell.plan.plan import Plan, axis_text
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import Refusal, refused
from foretell.plan.repair import told
from foretell.plan.setting import Setting, with_precision
from foretell.plan.strategies.data import Data
from foretell.plan.trainer import Trainer, trainer
from foretell.units import FLOATING

SIZABLE: Final = ("zoo", "hf", "paradl", "package")
"""Sources of models that are written for any number of samples; others are for a batch of their own."""


class Resolved(NamedTuple):
    """A plan that breaks no rule, with all that it meets, and what had to be chosen on the way."""

    request: Request
    setting: Setting
    cluster: Cluster | None  # as it was measured, where it was
    notes: tuple[str, ...]

    @property
    def place(self) -> Cluster:
        """The cluster, where the question needs one."""
        return self.cluster or self.request.place

    @property
    def micro_batch(self) -> int:
        """Samples that one rank takes at a time."""
        return micro_batch(self.setting.job, self.setting.plan)


def resolve(request: Request) -> Resolved:
    """Load what a question names, and refuse a plan that breaks rules: all of them are told, nothing is adjusted."""
    if request.plan is None:
        raise BadInput("no plan is given", where="--plan", fix="--plan 'dp8:zero3 +bf16'; one rank alone is dp1")
    _only_equal_shares(request)
    plans = PlanEvaluator(request)
    setting = plans.setting(request.plan)
    broken = plans.refusals(request.plan)
    if broken:
        raise refused(setting.plan, broken)
    notes = (*request.notes, *_chosen_batch(request, setting), *_placed(setting, request.cluster))
    notes += tuple(_types(request.model, setting))
    notes += (other,) if request.graph is None and (other := other_reading(request.model)) else ()
    if request.cluster is None:
        return Resolved(request, setting, None, notes)
    place = plans.place(request.plan.ranks)
    cluster, doubts = _profiled(request, setting, place.cluster)
    return Resolved(request, setting, cluster, (*notes, *place.notes, *doubts))


def _only_equal_shares(request: Request) -> None:
    """Unequal shares of the samples are several questions, which `predicted` asks one by one."""
    data = request.plan.axis(Data) if request.plan else None
    if request.cluster is not None and data is not None and data.shares:
        what = f"{axis_text(data)}: unequal shares of samples are predicted and run, and nothing else"
        fix = f"{axis_text(msgspec.structs.replace(data, shares=()))}, or foretell predict"
        raise BadInput(what, where="--plan", fix=fix)


def setting_of(request: Request, graph: Graph, plan: Plan, batch: int, software: Trainer | None = None) -> Setting:
    """A plan with its job, for a graph of one micro-batch over all ranks."""
    job = make_job(batch, trainer=request.trainer, optimizer=request.optimizer, sequence=request.seq)
    return Setting(graph, job, plan, software or trainer(request.trainer))


def loaded(request: Request, samples: int | None, seq: int, dtype: str = "") -> Graph:
    """The model that a question names, as it is trained, or as its forward pass alone."""
    found = load(request.model, samples, seq or None, dtype)
    return evaluated(found) if request.forward else found


def unmeasured(request: Request) -> Request:
    """The question of what a plan is, which no measurement has a say in."""
    return request.changed(measured=MeasurementFiles(calibration=NONE))


class PlanEvaluator:
    """Predicts any plan of one question; what was loaded or predicted once is remembered."""

    def __init__(self, request: Request, graphs: dict[str, Graph] | None = None) -> None:
        self.request, self.trainer = request, trainer(request.trainer)
        self._graphs: dict[str, Graph] = {} if graphs is None else graphs
        self._places: dict[int, CalibratedPlace] = {}
        self._legal: dict[Plan, bool] = {}
        self._found: dict[Plan, Prediction] = {}

    def elsewhere(self, request: Request) -> PlanEvaluator:
        """The same plans for a question that differs: the model is not loaded again for other hardware."""
        same = (request.batch, request.seq) == (self.request.batch, self.request.seq)
        return PlanEvaluator(request, self._graphs if same else None)

    # what a plan meets

    @property
    def cluster(self) -> Cluster:
        """As it was measured with all its ranks busy."""
        return self.place(self.request.place.ranks).cluster

    def place(self, ranks: int) -> CalibratedPlace:
        """Where a plan of so many ranks runs: fewer busy ranks of a machine may each be faster."""
        ranks = min(ranks, self.request.place.ranks)
        if ranks not in self._places:
            self._places[ranks] = place_of(self.request, ranks)
        return self._places[ranks]

    def setting(self, plan: Plan) -> Setting:
        """The plan with the graph of one micro-batch over all ranks, and its job."""
        request, dtype = self.request, with_precision(plan, self.trainer).policy(Precision).format.activation
        batch = request.batch or (per_rank(request.batch_per_rank, plan) if request.batch_per_rank else 0)
        if batch:
            graph = self._graph(max(1, batch // plan.microbatches), batch, dtype)
        else:
            graph = self._unsized(batch_ranks(plan), dtype)
            batch = graph.batch * plan.microbatches
        software = self.place(plan.ranks).trainer if request.cluster is not None else self.trainer
        return setting_of(request, graph, plan, batch, software)

    def _graph(self, samples: int, batch: int, dtype: str) -> Graph:
        """The model for so many samples: loaded once for each type, and sized."""
        if self.request.graph is not None:
            return with_samples(self.request.graph, samples)
        if dtype not in self._graphs:
            self._graphs[dtype] = self._load(samples, batch, dtype)
        known = self._graphs[dtype]
        if known.batch != samples and known.source not in SIZABLE:
            known = self._load(samples, batch, dtype)
        return with_samples(known, samples)

    def _load(self, samples: int, batch: int, dtype: str) -> Graph:
        try:
            return loaded(self.request, samples, self.request.seq, dtype)
        except BadInput:  # a graph or a factory for a batch of its own: that of the whole step
            if samples == batch:
                raise
            return loaded(self.request, batch, self.request.seq, dtype)

    def _unsized(self, samples: int, dtype: str) -> Graph:
        """The model for one sample of each rank that splits the batch, or for a batch of its own."""
        if self.request.graph is not None:
            return self.request.graph
        try:
            return loaded(self.request, samples, self.request.seq, dtype)
        except BadInput:
            return loaded(self.request, None, self.request.seq, dtype)

    # rules

    def complete(self, plan: Plan) -> Plan:
        """The plan with the precision that the trainer gives it."""
        return with_precision(plan, self.trainer)

    def allowed(self, plan: Plan) -> Plan:
        """The plan, if it breaks no rule."""
        found = self.refusals(plan)
        if found:
            raise refused(plan, found)
        return plan

    def broken(self, plan: Plan) -> tuple[Refusal, ...]:
        """The rules that a plan breaks; no way out was looked for."""
        return tuple(broken(self.setting(plan), self._where))

    def refusals(self, plan: Plan) -> tuple[Refusal, ...]:
        """The rules that a plan breaks, as a person reads them: with a way out that fits in memory."""
        found = self.broken(plan)
        if not found:
            return ()
        outside = [self._with_batches(plan, one) for one in found]
        way = next(harmless(lambda: (self.way_out(plan),)), WayOut(None))
        return tuple(told(outside, *way, ranks=min(plan.ranks, self._where.ranks) if self._where else plan.ranks))

    def _with_batches(self, plan: Plan, refusal: Refusal) -> Refusal:
        """A refusal with those of its batches with which the plan breaks no rule at all, and fits in memory."""
        if not refusal.batches or self._where is None:
            return refusal
        kept = [batch for batch in refusal.batches if any(harmless(lambda batch=batch: (self._holds(plan, batch),)))]
        return msgspec.structs.replace(refusal, way_out=as_options(kept))

    def _holds(self, plan: Plan, batch: int) -> bool:
        there = self.elsewhere(self.request.changed(batch=batch, batch_per_rank=0))
        return there.legal(plan) and there.fits(there.predicted(plan))

    def way_out(self, plan: Plan) -> WayOut:
        """The nearest plan that breaks no rule and fits in memory, where the question says on what."""
        if self._where is None:
            return WayOut(passing(self.setting(plan), None))
        near, ranks = partial(self._passing, plan), self._where.ranks
        offered = partial(self._offered, plan)
        return PlansNear(near, self._micro, ranks, offered, self.predicted, self.fits).way_out()

    def _offered(self, asked: Plan, plan: Plan) -> bool:
        """Whether a plan breaks no rule, and the trainer's configuration says it where it says the one asked for."""
        return self.legal(plan) and not says_less(self.trainer.offered, plan, asked)

    def nearest(self, plan: Plan) -> Plan | None:
        """The nearest plan that breaks no rule."""
        return next(self._passing(plan), None)

    def _passing(self, plan: Plan) -> Iterator[Plan]:
        return all_passing(self.setting(plan), self.cluster)

    def _micro(self, plan: Plan) -> int:
        return micro_batch(self.setting(plan).job, plan)

    @property
    def _where(self) -> Cluster | None:
        """The cluster as it was measured, if the question names one."""
        return self.cluster if self.request.cluster is not None else None

    def legal(self, plan: Plan) -> bool:
        """Whether a plan breaks no rule."""
        if plan not in self._legal:
            self._legal[plan] = fits(self.setting(plan), self.cluster)
        return self._legal[plan]

    # figures

    def predicted(self, plan: Plan) -> Prediction:
        """What `foretell predict` says of a plan that is legal."""
        if plan not in self._found:
            found = predict(self.setting(plan), self.place(plan.ranks).cluster)
            self._found[plan] = msgspec.structs.replace(found, model=self.request.model)
        return self._found[plan]

    def usable(self, found: Prediction) -> float:
        """Bytes that a plan may take: what a run can fill, or less if the question says so."""
        return min(self.request.max_memory or found.usable, found.usable)

    def fits(self, found: Prediction) -> bool:
        """Whether a prediction is within the memory that it may use."""
        return found.memory_bytes <= self.usable(found)


def place_of(request: Request, ranks: int = 0) -> CalibratedPlace:
    """Where plans of so many ranks (0: of all) run, as it was measured."""
    cluster = request.place
    found = as_measured(cluster, trainer(request.trainer), ranks or cluster.ranks, request.measured.calibration)
    if request.measured.stack:
        from foretell.oracle.kept_stacks import place_on  # which resolves what was measured

        found = place_on(found, request.measured, request.model, ranks or cluster.ranks)
    return found if request.upgrade is None else found._replace(cluster=request.upgrade.of(found.cluster))


def _profiled(request: Request, setting: Setting, cluster: Cluster) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster with what was measured of the model's layers, where they were, and what speaks against that."""
    if not request.measured.profile:
        return cluster, ()
    from foretell.cost.samples import profile
    from foretell.oracle.profiles import with_profile
    from foretell.records import store

    file = request.measured.profile
    found = store.examined(Path(file))
    known = with_profile(setting, cluster, request.model, profile(found.record, file))
    return known, tuple(f"{file}: {doubt}" for doubt in found.doubts)


# notes


def _chosen_batch(request: Request, setting: Setting) -> Iterator[str]:
    if request.batch or request.batch_per_rank or request.graph is not None:
        return
    graph, batch = setting.graph, setting.job.batch
    if graph.batch == batch_ranks(setting.plan):
        yield f"no batch is given: micro-batch size 1 on each data-parallel rank, a batch of {batch}"
    else:
        yield f"no batch is given: the graph has {graph.batch} samples in each micro-batch, a batch of {batch}"


def _placed(setting: Setting, cluster: Cluster | None) -> Iterator[str]:
    """Where a plan leaves ranks idle, and where no device has units for its precision."""
    if cluster is None:
        return
    plan = setting.plan
    if plan.ranks < cluster.ranks:
        nodes = -(-plan.ranks // cluster.ranks_per_node)
        where = f"on {nodes} of its {cluster.nodes} nodes" if cluster.nodes > 1 else "on its first devices"
        yield f"the plan uses {plan.ranks} of the {cluster.ranks} GPUs of {cluster.text}, packed {where}"
    precision = plan.policy(Precision)
    for device in {group.device.name: group.device for group in cluster.groups}.values():
        if not device.supports(precision.format.kernels) and precision.format.kernels != "tf32":
            yield f"{device.name} has no matrix units for {precision.format.kernels} (+{precision.name})"


def _types(model: str, setting: Setting) -> Iterator[str]:
    """A note where the model's activations are not of the type that the plan's precision gives them."""
    precision = setting.plan.policy(Precision)
    made = (
        tensor.dtype
        for block in setting.graph.blocks
        for tensor in block.tensors
        if tensor.role == "parameter" and tensor.dtype in FLOATING
    )
    own = next(made, precision.format.activation)
    if own != precision.format.activation:
        yield (
            f"{model} is written in {own} and +{precision.name} computes in {precision.format.activation}: "
            f"activations are counted in {own}"
        )
