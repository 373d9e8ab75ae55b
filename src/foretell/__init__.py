"""foretell tells how a training run will go before you rent the GPUs, and then proves it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, cast

from foretell.arguments import checked
from foretell.version import __version__

if TYPE_CHECKING:
    from foretell.dialects import Written
    from foretell.hardware.cluster import Cluster
    from foretell.hardware.disturbance import Disturbance
    from foretell.model.analysis import Analysis
    from foretell.model.graph import Graph
    from foretell.oracle.batches import BatchChoice
    from foretell.oracle.diff import Diff
    from foretell.oracle.fit import Fit
    from foretell.oracle.planning import Question
    from foretell.oracle.predict import Prediction
    from foretell.oracle.scale import Scaling
    from foretell.oracle.search import Found
    from foretell.oracle.training import Conditions
    from foretell.oracle.whatif import WhatIf
    from foretell.oracle.why import Why
    from foretell.plan.plan import Plan
    from foretell.plan.setting import Setting
    from foretell.program.program import Program
    from foretell.runtime.measure import Measurement
    from foretell.sweeping.sweep import Sweep
    from foretell.virtual.disturbance import Disturbances
    from foretell.virtual.simulate import Simulation

__all__ = [
    "__version__",
    "analyze",
    "choose_batch",
    "diff",
    "export",
    "fit",
    "load",
    "lower",
    "predict",
    "run",
    "scale",
    "search",
    "simulate",
    "sweep",
    "trace",
    "whatif",
    "why",
]


@checked
def load(model: str | PathLike[str], batch: int | None = None, seq: int | None = None) -> Graph:
    """The graph of a model: a name, a config.json, a .net file, or file.py:factory."""
    from foretell.model import source

    return source.load(fspath(model), batch, seq)


def trace(module: Any, inputs: Any, loss: Any = None, name: str = "") -> Graph:
    """The graph of a PyTorch module (or of a function that builds it) on these inputs."""
    from foretell.model.importers import torch_trace

    return torch_trace.trace(module, inputs, loss, name)


@checked
def analyze(model: str | PathLike[str] | Graph, batch: int | None = None, seq: int | None = None) -> Analysis:
    """What a model needs and how far it can be split; `model` is a text, a path or a graph."""
    from foretell.errors import BadInput
    from foretell.model import analysis
    from foretell.model.graph import Graph

    if not isinstance(model, Graph):
        return analysis.analyze(load(model, batch, seq))
    if batch not in (None, model.batch) or seq is not None:
        raise BadInput(f"this graph is for a batch of {model.batch}", fix="load the model with another batch or seq")
    return analysis.analyze(model)


@checked
def predict(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    plan: str | Plan,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    batch_per_rank: int | None = None,
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    calibration: str | PathLike[str] = "",
    profile: str | PathLike[str] = "",
    anchors: Sequence[str | PathLike[str]] = (),
    disturbance: Disturbance | None = None,
) -> Prediction:
    """How long a step takes under a plan, what memory a rank needs, and what limits it.

    The same answer as `foretell predict`, from texts or from values; a plan that is refused is a BadInput. With tokens
    or samples to train on, its `training` is the whole run: days, goodput, and money at a price of a device an hour.
    What a run meets beside its steps (input, checkpoints, failures) is a `foretell.oracle.training.Conditions`.
    Files of `foretell calibrate`, of `foretell profile` and of measurements put what was measured in place of formulas.
    A `foretell.hardware.disturbance.Disturbance` says what is wrong with the machine.
    """
    from foretell.hardware import catalog
    from foretell.model.graph import Graph
    from foretell.oracle import predict as oracle
    from foretell.oracle import training
    from foretell.oracle.calibrations import with_calibration

    run = training.run(tokens, samples, epochs, price, conditions)
    setting = _setting(model, cluster, plan, batch, trainer, optimizer, seq, batch_per_rank)
    if not profile and not anchors:
        place = catalog.cluster(cluster) if isinstance(cluster, str) else cluster
        question = with_calibration(setting, place, fspath(calibration))
        if disturbance:
            from foretell.oracle.disturbed import predict_disturbed

            return predict_disturbed(question.setting, question.cluster, disturbance, run)
        return oracle.predict(question.setting, question.cluster, run)
    from foretell.cli.evidence_options import Known, answered
    from foretell.cli.inputs import Given
    from foretell.errors import BadInput

    if isinstance(model, Graph) or not isinstance(cluster, str):
        raise BadInput("profiles and anchors are about a model and a cluster by name", fix="both as texts")
    from foretell.hardware.disturbance import CALM

    given = Given(fspath(model), str(plan), cluster, batch, batch_per_rank, seq, trainer, optimizer)
    known = Known(fspath(calibration), fspath(profile), tuple(fspath(one) for one in anchors))
    return answered(given, known, run, disturbance or CALM)[1]


@checked
def export(
    model: str | PathLike[str],
    cluster: str | Cluster,
    plan: str | Plan,
    batch: int | None = None,
    *,
    to: str,
    trainer: str = "",
    optimizer: str = "",
    seq: int | None = None,
) -> Written:
    """A plan as the configuration of a trainer, and what the configuration leaves to something else.

    The same as `foretell export --to`: `to` is a dialect (torchtitan, megatron-lm, deepspeed, ...). A plan that the
    dialect has no words for is a BadInput.
    """
    from foretell.dialects import dialect, recipe_of, trainer_of, write
    from foretell.hardware import catalog
    from foretell.plan.plan import Plan
    from foretell.plan.text import parse

    chosen = dialect(to)
    read = plan if isinstance(plan, Plan) else parse(plan)
    setting = _setting(model, cluster, read, batch, trainer or trainer_of(chosen, read), optimizer, seq, None)
    place = catalog.cluster(cluster) if isinstance(cluster, str) else cluster
    return write(chosen, recipe_of(setting, fspath(model), place))


@checked
def run(
    model: str | PathLike[str],
    plan: str | Plan,
    batch: int = 0,
    *,
    steps: int = 20,
    task: str = "synthetic",
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    rate: float = 0.0,
    seed: int = 0,
    device: str = "cpu",
    threads: int = 1,
    method: str = "",
    seconds: float = 900.0,
) -> Measurement:
    """Train under a plan on ranks of this machine, and measure: `foretell run`, without a record.

    `method` is an algorithm of `foretell simulate` in the place of the one that the plan means, where ranks go at their
    own pace. The ranks are processes of their own; they end with the run, when one of them fails, and after `seconds`.
    """
    from foretell.runtime.assignment import Assignment
    from foretell.runtime.launch import Ranks
    from foretell.runtime.recording import observed

    assignment = Assignment(
        model=fspath(model),
        plan=str(plan),
        batch=batch,
        seq=seq or 0,
        trainer=trainer,
        optimizer=optimizer,
        rate=rate,
        task=task,
        steps=steps,
        seed=seed,
        device=device,
        threads=threads,
        method=method,
    )
    assignment.setting()  # one that is refused ends here, without any rank
    with Ranks() as ranks:
        reports = ranks.run(assignment, seconds)
    return observed(assignment, reports)


@checked
def search(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    batch_per_rank: int | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    top: int = 10,
    calibration: str | PathLike[str] = "",
) -> Found:
    """The best plans of all that are legal, every one of them priced as `predict` does.

    `best` is the fastest that fits, None if nothing does; `plans` are all, and can be written as a table. `finer` says
    what was chosen for the leading plans besides: the layers of each stage of a pipeline. With
    `batch_per_rank` the batch goes with the ranks that split it, and the answer is that with most samples a second.
    Ctrl-C returns what was found until then, with `complete` False.
    """
    from foretell.oracle import planning
    from foretell.oracle.finer import finer

    asked = planning.asked(
        model,
        cluster,
        batch,
        batch_per_rank,
        trainer=trainer,
        optimizer=optimizer,
        seq=seq,
        precision=precision,
        wishes=planning.wished(only, without, also, fix),
        max_memory=max_memory,
        top=top,
        calibration=calibration,
    )
    return finer(planning.answered_best(asked)).found


@checked
def choose_batch(
    model: str | PathLike[str],
    cluster: str | Cluster,
    noise_scale: str | float,
    batches: str | Sequence[int] = "auto",
    *,
    tokens: float = 0.0,
    samples: float = 0.0,
    price: float = 0.0,
    by: str = "time",
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
) -> BatchChoice:
    """The batch with the least time to quality, by the gradient noise scale: `foretell plan --batch auto`.

    `noise_scale` is in samples, or a text with its unit: "2e6 tokens". `batches` are "auto", a range "32..4096" or
    numbers. `tokens` or `samples` are what training takes with small batches; without them times are in units of the
    least number of steps. `by` is "time" or "money".
    """
    from foretell.errors import BadInput
    from foretell.hardware import catalog
    from foretell.oracle import batches as oracle
    from foretell.oracle import planning

    if by not in ("time", "money"):
        raise BadInput(f"the best batch by {by!r}", where="by", fix='"time" or "money"')
    place = catalog.cluster(cluster) if isinstance(cluster, str) else cluster
    name = fspath(model)
    trade = oracle.tradeoff(noise_scale, tokens, samples, oracle.sequence_of(name, seq or 0))
    chosen = oracle.wanted(batches, trade.noise, [place.ranks]) if isinstance(batches, str) else sorted(set(batches))
    words = (only, without, also)
    asked = [
        _question(name, place, batch, trainer, optimizer, seq, precision, words, fix, max_memory, calibration)
        for batch in chosen
    ]
    return oracle.weighed([planning.answered(one) for one in asked], trade, price, by)


@checked
def why(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    plan: str | Plan,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
) -> Why:
    """Why a plan is refused, does not fit, or loses to the best, and what would make it win: `foretell why`."""
    from foretell.oracle import why as oracle
    from foretell.plan.text import parse

    words = (only, without, also)
    asked = _question(model, cluster, batch, trainer, optimizer, seq, "", words, fix, max_memory, calibration)
    return oracle.why(asked, parse(plan) if isinstance(plan, str) else plan)


@checked
def diff(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    plan1: str | Plan,
    plan2: str | Plan,
    batch: int | None = None,
    *,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    calibration: str | PathLike[str] = "",
) -> Diff:
    """Where two plans differ, what each difference costs, and a way from the first to the second: `foretell diff`."""
    from foretell.oracle import diff as oracle
    from foretell.oracle.trial import Trial

    trial = Trial(_question(model, cluster, batch, trainer, optimizer, seq, calibration=calibration))
    return oracle.diff(trial, trial.readable(plan1, "plan1"), trial.readable(plan2, "plan2"))


@checked
def scale(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    gpus: Sequence[int],
    batch: int | None = None,
    *,
    batch_per_rank: int | None = None,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
) -> Scaling:
    """Time, efficiency and memory of each strategy over numbers of ranks: `foretell scale`.

    With `batch` the batch stays the same (strong scaling), with `batch_per_rank` it grows with the ranks that split it.
    """
    from foretell.errors import BadInput
    from foretell.oracle import scale as oracle

    if batch is not None and batch_per_rank is not None:
        raise BadInput("a batch of all ranks, and one per rank", fix="one of the two")
    words = (only, without, also)
    total = batch if batch_per_rank is None else max(1, batch_per_rank)
    asked = _question(model, cluster, total, trainer, optimizer, seq, precision, words, fix, max_memory, calibration)
    return oracle.scale(asked, gpus, batch_per_rank or 0)


@checked
def whatif(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    plan: str | Plan = "best",
    batch: int | None = None,
    *,
    again: bool = False,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    precision: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
) -> WhatIf:
    """What other hardware, batches and sequences would do to a step, and which upgrade pays: `foretell whatif`."""
    from foretell.oracle import whatif as oracle
    from foretell.oracle.trial import Trial

    words = (only, without, also)
    asked = _question(model, cluster, batch, trainer, optimizer, seq, precision, words, fix, max_memory, calibration)
    return oracle.whatif(asked, None if plan == "best" else Trial(asked).readable(plan, "plan"), again)


@checked
def simulate(
    model: str | PathLike[str],
    cluster: str | Cluster,
    workers: int | Sequence[int],
    algorithms: str | Sequence[str] = ("sync@replicated", "async"),
    *,
    learns: str = "",
    task: str = "digits",
    batch: int = 8,
    rates: float | Sequence[float] = 0.5,
    momentum: float = 0.0,
    target: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    trainer: str = "pytorch",
    disturbances: Disturbances | None = None,
) -> Simulation:
    """Training algorithms by the virtual time to a target loss: `foretell simulate`.

    Times are those of `model` on the cluster, gradients those of `learns` (the model itself where it is small).
    `batch` is a worker's; of several `rates` the best counts for each algorithm.
    """
    from foretell.hardware import catalog
    from foretell.virtual.disturbance import CALM
    from foretell.virtual.simulate import Contest
    from foretell.virtual.simulate import simulate as simulated

    asked = Contest(
        fspath(model),
        catalog.cluster(cluster) if isinstance(cluster, str) else cluster,
        (workers,) if isinstance(workers, int) else tuple(workers),
        (algorithms,) if isinstance(algorithms, str) else tuple(algorithms),
        learns=learns,
        task=task,
        batch=batch,
        rates=(rates,) if isinstance(rates, int | float) else tuple(rates),
        momentum=momentum,
        target=target,
        samples=samples,
        seed=seed,
        trainer=trainer,
        disturbances=disturbances or CALM,
    )
    return simulated(asked)


@checked
def sweep(
    models: str | PathLike[str] | Sequence[str | PathLike[str]],
    clusters: str | Sequence[str],
    batches: int | Sequence[int],
    *,
    trainers: str | Sequence[str] = "pytorch",
    seqs: int | Sequence[int] = 0,
    precisions: str | Sequence[str] = "",
    plans: str | Sequence[str] = (),
    ask: str = "",
    optimizer: str = "",
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    also: str | Sequence[str] = (),
    fix: str = "",
    max_memory: str | float = "",
    out: str | PathLike[str] | None = None,
    engine: str = "processes",
    jobs: int = 0,
    calibration: str | PathLike[str] = "",
) -> Sweep:
    """Many questions at once, each model on each cluster with each batch and trainer: `foretell sweep`.

    Without plans each cell is a search, with them each plan is predicted. Lines are in the order of the cells, the same
    for any engine and number of jobs. With a folder as `out` each answer is kept; asked again, it goes on from there.
    """
    from pathlib import Path

    from foretell.oracle.planning import wished
    from foretell.sweeping.sweep import Grid
    from foretell.sweeping.sweep import sweep as swept

    def several(given: Any) -> tuple[Any, ...]:
        if isinstance(given, str | int) or hasattr(given, "__fspath__"):
            return (named(given),)
        return tuple(map(named, given))

    def named(one: Any) -> str | int:
        return one if isinstance(one, int) else fspath(cast("str", one))

    grid = Grid(
        several(models),
        several(clusters),
        several(batches),
        several(trainers),
        several(seqs),
        several(precisions),
        several(plans),
        ask,
    )
    wishes = wished(only, without, also, fix)
    words = {name: getattr(wishes, name) for name in ("only", "without", "also", "fixed")}
    most = max_memory if isinstance(max_memory, str) else f"{max_memory:.17g} B"
    cells = grid.cells(fspath(calibration), optimizer=optimizer, max_memory=most, **words)
    return swept(cells, None if out is None else Path(out), engine, jobs)


@checked
def lower(
    model: str | PathLike[str] | Graph,
    plan: str | Plan,
    batch: int | None = None,
    *,
    cluster: str | Cluster | None = None,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    batch_per_rank: int | None = None,
) -> Program:
    """The program of a plan: what each rank computes, sends and holds in a step.

    (`foretell.program` is the package that programs are made in.)
    """
    from foretell.program import lower as lowering

    return lowering.lower(_setting(model, cluster, plan, batch, trainer, optimizer, seq, batch_per_rank))


@checked
def fit(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    plan: str | Plan | None = None,
    *,
    batch: int | None = None,
    trainer: str = "pytorch",
    optimizer: str = "",
    seq: int | None = None,
    tokens: float = 0.0,
    samples: float = 0.0,
    epochs: float = 1.0,
    price: float = 0.0,
    conditions: Conditions | None = None,
    calibration: str | PathLike[str] = "",
) -> Fit:
    """Whether a model fits a cluster, with which plan, how many samples at a time, and else what would.

    A whole run is asked about as in `predict`, and found in the `training` of its `prediction`.
    """
    from foretell.model.graph import Graph
    from foretell.oracle import fit as oracle
    from foretell.oracle import training

    graph = model if isinstance(model, Graph) else None
    name = model.name if isinstance(model, Graph) else fspath(model)
    run = training.run(tokens, samples, epochs, price, conditions)
    asked = oracle.wish(
        name,
        cluster,
        plan,
        batch=batch,
        trainer_name=trainer,
        seq=seq,
        optimizer=optimizer,
        graph=graph,
        run=run,
        calibration=fspath(calibration),
    )
    return oracle.fit(asked)


def _setting(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster | None,
    plan: str | Plan,
    batch: int | None,
    trainer: str,
    optimizer: str,
    seq: int | None,
    batch_per_rank: int | None,
) -> Setting:
    """The setting that the arguments stand for, read and refused as on the command line."""
    from foretell.cli import inputs
    from foretell.errors import BadInput
    from foretell.hardware import catalog
    from foretell.model.graph import Graph
    from foretell.plan.fitness import refusals
    from foretell.plan.refusal import refused

    if not isinstance(model, Graph):
        place = cluster if isinstance(cluster, str) else None
        given = inputs.Given(fspath(model), str(plan), place, batch, batch_per_rank, seq, trainer, optimizer)
        setting = inputs.read(given).setting
    elif seq is not None or batch_per_rank is not None:
        raise BadInput("a graph has its own sequence and batch", fix="load the model with others")
    else:
        setting = _of_graph(model, plan, batch, trainer, optimizer)
    where = catalog.cluster(cluster) if isinstance(cluster, str) else cluster
    found = tuple(refusals(setting, where))
    if found:
        raise refused(setting.plan, found)
    return setting


def _of_graph(graph: Graph, plan: str | Plan, batch: int | None, trainer: str, optimizer: str) -> Setting:
    """A setting for a graph, whose batch is that of one micro-batch over all ranks."""
    from foretell.errors import BadInput
    from foretell.plan import trainer as trainers
    from foretell.plan.job import make_job
    from foretell.plan.setting import Setting
    from foretell.plan.text import parse

    read = parse(plan) if isinstance(plan, str) else plan
    own = graph.batch * read.microbatches
    if batch not in (None, own):
        what = f"a batch of {batch}, and this graph gives {read.microbatches} micro-batches of {graph.batch}"
        raise BadInput(what, fix=f"batch={own}, or a graph for another batch")
    job = make_job(own, trainer=trainer, optimizer=optimizer)
    return Setting(graph, job, read, trainers.trainer(trainer))


def _question(
    model: str | PathLike[str] | Graph,
    cluster: str | Cluster,
    batch: int | None,
    trainer: str,
    optimizer: str,
    seq: int | None,
    precision: str = "",
    words: tuple[str | Sequence[str], str | Sequence[str], str | Sequence[str]] = ((), (), ()),
    fix: str = "",
    max_memory: str | float = 0.0,
    calibration: str | PathLike[str] = "",
) -> Question:
    """What is asked about plans of one batch; `words` are those of only, without and also."""
    from foretell.oracle import planning

    found = planning.asked(
        model,
        cluster,
        batch,
        trainer=trainer,
        optimizer=optimizer,
        seq=seq,
        precision=precision,
        wishes=planning.wished(*words, fix),
        max_memory=max_memory,
        calibration=calibration,
    )
    return found[0]
