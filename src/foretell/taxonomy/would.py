"""What systems would do with a model on a cluster: their presets, grown to its ranks, priced and simulated.

A preset is written for eight ranks. On more of them its samples go to more ranks, with as many servers for each;
what cuts the model stays as it is. All have the same batch, so that their steps can be compared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from foretell.oracle.predict import predict
from foretell.oracle.request import Request
from foretell.oracle.resolve import resolve, unmeasured
from foretell.plan.plan import Plan
from foretell.plan.refusal import PlanRefused
from foretell.plan.repair import with_fields
from foretell.plan.strategies.server import Server
from foretell.plan.text import parse
from foretell.taxonomy.systems import System, system
from foretell.virtual.pace import DoesNotFit
from foretell.virtual.simulate import Contest, TunedRun, Watch, simulate, unwatched

WRITTEN: Final = 8
"""Ranks that presets are written for."""

SAMPLES: Final = ("dp", "ps", "local", "ring", "gossip")
"""Axes that grow with a cluster."""


class Would(msgspec.Struct, frozen=True, kw_only=True):
    """One system. Figures of its step are None, and `why` says the reason, where its plan is refused on this cluster;
    where it does not fit, `why` says so. Without a plan, or without an algorithm, nothing here is like it."""

    system: str
    title: str
    plan: str = ""
    step_seconds: float | None = None
    samples_per_second: float | None = None
    memory_bytes: float | None = None
    algorithm: str = ""  # of `foretell simulate`
    seconds_to_target: float | None = None
    samples_to_target: int | None = None
    why: str = ""


class Doings(msgspec.Struct, frozen=True, kw_only=True):
    """Several systems on one cluster, the one that learns fastest first, then by their steps."""

    model: str
    cluster: str
    batch: int  # of all ranks
    workers: int  # in virtual time
    learns: str
    target: float
    systems: tuple[Would, ...]


def would(asked: Contest, names: Sequence[str], watch: Watch = unwatched) -> Doings:
    """`asked` has one number of workers, and no algorithms yet; `batch` is a worker's."""
    found = {name: system(name) for name in names}
    ranks, batch = asked.cluster.ranks, asked.batch * asked.cluster.ranks
    runs = _simulated(asked, [one.simulate for one in found.values() if one.simulate], watch)
    learnt = {run.algorithm: run for run in runs.runs} if runs else {}
    rows = [_would(asked, name, one, ranks, batch, learnt) for name, one in found.items()]
    return Doings(
        model=asked.model,
        cluster=asked.cluster.text,
        batch=batch,
        workers=max(asked.workers),
        learns=runs.learns if runs else "",
        target=runs.target if runs else 0.0,
        systems=tuple(sorted(rows, key=_order)),
    )


def _order(one: Would) -> tuple[float, float]:
    return (
        math.inf if one.seconds_to_target is None else one.seconds_to_target,
        math.inf if one.step_seconds is None else one.step_seconds,
    )


def _simulated(asked: Contest, presets: Iterable[str], watch: Watch) -> Any:
    """Of those that can be; nothing where none can, or where no rank holds the model."""
    texts = tuple(dict.fromkeys(shared(text, max(asked.workers)) for text in presets))
    try:
        return simulate(asked._replace(algorithms=texts), watch) if texts else None
    except DoesNotFit:
        return None


def _would(asked: Contest, name: str, one: System, ranks: int, batch: int, learnt: Mapping[str, TunedRun]) -> Would:
    text = shared(one.simulate, max(asked.workers)) if one.simulate else ""
    run = learnt.get(text)
    found = Would(
        system=name,
        title=one.title,
        algorithm=text,
        seconds_to_target=run.virtual_seconds_to_target if run else None,
        samples_to_target=run.samples_to_target if run else None,
    )
    if not one.plan:
        return found
    plan = grown(parse(one.plan), ranks)
    return msgspec.structs.replace(found, plan=str(plan), **_priced(asked, plan, batch))


def _priced(asked: Contest, plan: Plan, batch: int) -> dict[str, Any]:
    """What a step takes, or why there is none."""
    try:
        request = Request(model=asked.model, cluster=asked.cluster, plan=plan, batch=batch, trainer=asked.trainer)
        step = predict(resolve(unmeasured(request)).setting, asked.cluster)
    except PlanRefused as problem:
        return {"why": problem.refusals[0].why}
    return {
        "step_seconds": step.step_seconds,
        "samples_per_second": step.samples_per_second,
        "memory_bytes": step.memory_bytes,
        "why": "" if step.fits else "more than a rank holds",
    }


def grown(plan: Plan, ranks: int) -> Plan:
    """A preset on more ranks, or on fewer."""
    axis = next((one for one in plan.axes if one.word in SAMPLES), None)
    if axis is None:
        return plan
    size = max(1, ranks // (plan.ranks // axis.world) // (axis.world // axis.ranks))
    fields: dict[str, Any] = {"ranks": size}
    if isinstance(axis, Server):
        fields["servers"] = max(1, axis.servers * size // axis.ranks)
    other = with_fields(axis, **fields)
    return msgspec.structs.replace(plan, axes=tuple(other if one is axis else one for one in plan.axes))


def shared(text: str, workers: int) -> str:
    """An algorithm with as many servers for each worker as its preset has."""
    return re.sub(r"@sharded:k=(\d+)", lambda form: f"@sharded:k={max(1, int(form[1]) * workers // WRITTEN)}", text)
