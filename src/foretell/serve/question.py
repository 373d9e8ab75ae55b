"""What the calls are about: a model under a plan on a cluster.

A question is read as the command line reads its options, with two differences. Names are names: no text of a question
becomes a path, so nobody who asks can make this machine open a file of its own or run code. And models are kept: a
slider that moves asks about the same model again, for other samples.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from foretell.errors import BadInput, ForetellError, unknown
from foretell.hardware import catalog
from foretell.hardware.cluster import Cluster
from foretell.model import source, zoo
from foretell.model.graph import Graph
from foretell.model.naming import unknown_model
from foretell.oracle import upgrades
from foretell.oracle.request import MeasurementFiles, Request
from foretell.oracle.resolve import PlanEvaluator, Resolved, resolve
from foretell.oracle.training import TrainingRun, run
from foretell.plan.facts import facts
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import Precision
from foretell.plan.refusal import PlanRefused
from foretell.plan.setting import with_precision
from foretell.plan.text import parse
from foretell.plan.trainer import trainer
from foretell.serve import uploads

Name: TypeAlias = Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9_.:-]*$")]
ModelText: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=250,
        pattern=r"^[A-Za-z0-9_.:,=+-]+$",
        description="a name of the zoo, fields set if wished (llama3-8b:layers=16), or what /api/models answered",
        examples=["llama3-8b"],
    ),
]
ClusterText: TypeAlias = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=250,
        pattern=r"^[A-Za-z0-9 _.:,-]+$",
        description="64xh100, 8x8xh100,ib-ndr, 32xdgx-a100, abci:64",
        examples=["64xh100"],
    ),
]
PlanText: TypeAlias = Annotated[
    str,
    Meta(
        max_length=1000,
        description="axes and policies: dp8:zero1 tp8:sp +m8 +bf16",
        examples=["dp8:zero1 tp8:sp +m8 +bf16"],
    ),
]
Samples: TypeAlias = Annotated[int, Meta(ge=1, le=source.LARGEST_BATCH, examples=[64])]
Tokens: TypeAlias = Annotated[int, Meta(ge=0, le=source.LARGEST_BATCH, description="of a sequence; 0: the model's own")]
Amount: TypeAlias = Annotated[
    float, Meta(ge=0, le=1e18, description="tokens to train, or samples that are no sequences; 0: a step alone")
]
Price: TypeAlias = Annotated[float, Meta(ge=0, le=1e6, description="of a GPU for an hour; 0: not asked")]
Times: TypeAlias = Annotated[float, Meta(ge=0.01, le=100.0)]
Hardware: TypeAlias = Annotated[
    dict[Annotated[str, Meta(max_length=60)], Times],
    Meta(max_length=20, description='parts of the cluster, so many times as good: {"fabric bandwidth": 2}'),
]


class QuestionSubject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked about, apart from the plan."""

    model: ModelText
    cluster: ClusterText
    batch: Samples  # of a step, of all ranks together
    seq: Tokens = 0
    trainer: Name = ""  # empty: pytorch, or for a configuration the one that it is for
    optimizer: Name = ""  # empty: the trainer's
    hardware: Hardware = {}
    stack: Name = ""  # measured steps that are kept here under this name correct the answer; empty: none
    tokens: Amount = 0.0
    price: Price = 0.0


class Question(QuestionSubject, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model under a plan on a cluster."""

    plan: PlanText


class Refused(PlanRefused):
    """A plan that breaks rules, and the nearest one that breaks none."""

    plans: tuple[str, ...] = ()

    def told(self) -> dict[str, Any]:
        return super().told() | {"plans": self.plans}


USUAL: Final = "pytorch"


def read(question: Question) -> Resolved:
    """What a question stands for, as this machine was measured, where it was."""
    request, plan = request_of(question), parse(question.plan)
    dtype = with_precision(plan, trainer(request.trainer)).policy(Precision).format.activation
    graph = graph_of(question.model, question.seq, dtype)
    request = request.changed(plan=plan, graph=graph, run=run_of(question, graph))
    try:
        found = resolve(request)
    except PlanRefused as problem:
        raise _with_neighbour(problem, request, plan) from None
    cluster = bettered(found.place, question.hardware)
    return found._replace(cluster=cluster, notes=(*found.notes, *found.setting.graph.warnings))


def request_of(subject: QuestionSubject) -> Request:
    """What is asked about, apart from the plan; nothing of it is a file of this machine."""
    return Request(
        model=subject.model,
        cluster=cluster_of(subject.cluster).cluster,
        batch=subject.batch,
        seq=subject.seq,
        trainer=trainer_name(subject.trainer),
        optimizer=subject.optimizer,
        measured=MeasurementFiles(stack=subject.stack),
        notes=cluster_of(subject.cluster).notes,
    )


def run_of(subject: QuestionSubject, graph: Graph) -> TrainingRun:
    """The whole run that is asked about; a model without sequences has samples to train on."""
    if facts(graph).sequence:
        return run(tokens=subject.tokens, price=subject.price)
    return run(samples=subject.tokens, price=subject.price)


def _with_neighbour(problem: PlanRefused, request: Request, plan: Plan) -> Refused:
    """The refusal with the nearest plan that breaks no rule and fits in memory, for a page to offer."""
    near = PlanEvaluator(request).way_out(plan).plan
    told = Refused(problem.what, where="plan")
    told.refusals, told.plans = problem.refusals, (str(near),) if near is not None else ()
    return told


# names


def cluster_of(text: str) -> catalog.NamedCluster:
    """A cluster by its text, which is never a file's."""
    if ".toml" in text.lower():
        raise BadInput("clusters of files are for the command line", where="cluster", fix=catalog.NAMED)
    try:
        return catalog.named(text)
    except ForetellError as problem:
        fix = problem.fix.replace(catalog.FORMS, catalog.NAMED)  # no file is read for a page
        raise type(problem)(problem.what, where=problem.where or "cluster", fix=fix) from None


def trainer_name(text: str) -> str:
    """A trainer by its name, which is never a file's."""
    if text.lower().endswith(".toml"):
        raise BadInput("trainers of files are for the command line", where="trainer", fix=USUAL)
    return text or USUAL


def model_text(text: str) -> str:
    """What `source.load` understands, of a model of the zoo or one that was uploaded; never code or another path."""
    if text.startswith(uploads.PREFIX):
        path = str(uploads.path(text))
        # of a configuration that the zoo does not know no class is traced for a page: that takes minutes
        return path if path.endswith((uploads.GRAPH, ".net")) else f"{path}:as=zoo"
    text = zoo.canonical(text)
    name = text.partition(":")[0]
    if name not in zoo.names():
        raise unknown_model(name, zoo.names()).within("model")
    return text


# the model


@functools.lru_cache(maxsize=32)
def graph_of(model: str, seq: int, dtype: str) -> Graph:
    """A model for whatever batch it has of itself; to build one takes longer than to predict it."""
    path = model_text(model)
    graph = source.load(path, None, seq or None, dtype)
    return msgspec.structs.replace(graph, name=uploads.named(model) if path != model else model)


# the hardware


def bettered(cluster: Cluster, times: dict[str, float]) -> Cluster:
    """A cluster with some of its parts so many times as good."""
    for name, factor in sorted(times.items()):
        found = {knob.name: knob for knob in upgrades.hardware(cluster)}
        if name not in found:
            raise unknown("part of the hardware", name, found).within("hardware")
        upgrade = found[name].changed(Request(model="", cluster=cluster, batch=1), factor)
        assert upgrade is not None and upgrade.upgrade is not None  # hardware can be turned as far as one likes
        cluster = upgrade.upgrade.of(cluster) if factor != 1 else cluster
    return cluster


def knobs(cluster: Cluster) -> tuple[str, ...]:
    """What of a cluster can be better or worse."""
    return tuple(knob.name for knob in upgrades.hardware(cluster))
