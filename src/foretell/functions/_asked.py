"""What arguments stand for: settings and questions, read as on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.hardware.cluster import Cluster
    from foretell.model.graph import Graph
    from foretell.oracle.planning import Question
    from foretell.plan.plan import Plan
    from foretell.plan.setting import Setting


def setting_of(
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


def question_of(
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
