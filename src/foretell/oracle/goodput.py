"""The share of a run that counts, from four times: between failures, of a checkpoint, to get over a failure, between
two checkpoints.

Young 1974 (doi 10.1145/361147.361115) has the interval of first order, Daly 2006 (doi 10.1016/j.future.2004.11.016) the
one of higher order and the expected time of a whole run, for failures that come at random at a steady rate.
"""

from __future__ import annotations

import math

import msgspec

from foretell.errors import BadInput
from foretell.oracle.planning import precision_of
from foretell.oracle.request import Request
from foretell.oracle.resolve import PlanEvaluator, resolve, unmeasured
from foretell.oracle.training import best_interval, checkpoint_bytes, first_order_interval, job_mtbf, wall_seconds
from foretell.plan.plan import Plan
from foretell.plan.policies.precision import Precision
from foretell.units import ceil_div


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """What failures and checkpoints leave of a run; all times in seconds."""

    goodput: float
    mtbf: float
    checkpoint_seconds: float
    restart_seconds: float
    interval: float  # of steps, between two checkpoints
    best_interval: float
    best_goodput: float
    young_interval: float  # the estimate of first order


def goodput(
    mtbf: float, checkpoint: float, restart: float = 0.0, interval: float = 0.0, *, in_restarts: bool = True
) -> Goodput:
    """The share that counts. Without an interval it is the best.

    Daly has failures come while a run gets over the last one, too; those that are rehearsed do not (`in_restarts`).
    """
    for name, seconds in (("mtbf", mtbf), ("checkpoint", checkpoint)):
        if not (seconds > 0 and math.isfinite(seconds)):
            raise BadInput(f"a {name} of {seconds:g} s", where=f"--{name}", fix="more than 0")
    if min(restart, interval) < 0:
        raise BadInput("a time below 0", where="--restart, --every", fix="0 or more")
    best = best_interval(checkpoint, mtbf)
    chosen = interval or best
    return Goodput(
        goodput=1 / (wall_seconds if in_restarts else _spared)(1.0, chosen, checkpoint, mtbf, restart),
        mtbf=mtbf,
        checkpoint_seconds=checkpoint,
        restart_seconds=restart,
        interval=chosen,
        best_interval=best,
        best_goodput=1 / (wall_seconds if in_restarts else _spared)(1.0, best, checkpoint, mtbf, restart),
        young_interval=first_order_interval(checkpoint, mtbf),
    )


class CheckpointedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A model on a cluster, as far as failures and checkpoints go."""

    model: str
    cluster: str
    ranks: int
    nodes: int
    plan: str  # empty: all ranks of the cluster
    checkpoint_bytes: float


def job_of(request: Request) -> CheckpointedJob:
    """What a checkpoint of a model has, and how many devices may fail: those of the plan, or all there are."""
    place, plain = request.place, unmeasured(request)
    if request.plan is not None:
        setting = resolve(plain).setting
    else:
        setting = PlanEvaluator(plain).setting(Plan(policies=(Precision(name=precision_of(plain)),)))
    ranks = setting.plan.ranks if request.plan is not None else place.ranks
    return CheckpointedJob(
        model=request.model,
        cluster=place.text,
        ranks=ranks,
        nodes=ceil_div(ranks, place.ranks_per_node),
        plan=str(setting.plan) if request.plan is not None else "",
        checkpoint_bytes=checkpoint_bytes(setting),
    )


def mtbf_of(job: CheckpointedJob, device_mtbf: float, node_mtbf: float) -> float:
    """Mean seconds between failures of a job from those of its parts; 0 where neither is known."""
    found = job_mtbf(job.ranks, job.nodes, device_mtbf or math.inf, node_mtbf or math.inf)
    return found if math.isfinite(found) else 0.0


def _spared(productive: float, interval: float, dump: float, mtbf: float, restart: float) -> float:
    """Expected time where restarts always go well: each of the e^((interval + dump) / mtbf) - 1 failures that a segment
    has in the mean costs one."""
    alone = wall_seconds(productive, interval, dump, mtbf, 0.0)
    return alone * (1 + restart / mtbf)
